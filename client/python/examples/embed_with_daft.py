#!/usr/bin/env python3
"""Embeddings in Daft: a class whose client each worker makes once.

embed_with_daft.py IN.parquet OUT SERVER
"""

import sys

import daft
import numpy as np

import castor

source, target, server = sys.argv[1:]
width = castor.Client(server).model().hidden_size


@daft.cls
class Embed:
    def __init__(self, address: str) -> None:
        self.client = castor.Client(address, timeout=600)

    @daft.method.batch(return_dtype=daft.DataType.embedding(daft.DataType.float32(), width))
    def __call__(self, texts: daft.Series) -> np.ndarray:
        return self.client.encode(texts.to_pylist(), truncate=True, priority="low")


embed = Embed(server)
table = daft.read_parquet(source)
table = table.select("id", embed(daft.col("text")).alias("embedding"))
table.write_parquet(target)
