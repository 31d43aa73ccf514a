#!/usr/bin/env python3
"""Embeddings in Spark: one blocking client for each task, batches as Arrow.

embed_with_spark.py IN.parquet OUT SERVER
"""

import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

source, target, server = sys.argv[1:]


def embed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import castor  # on the worker

    with castor.Client(server, timeout=600) as client:
        for batch in batches:
            rows = client.encode(batch["text"].to_pylist(), truncate=True, priority="low")
            offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
            column = pa.ListArray.from_arrays(offsets, rows.reshape(-1))
            yield pa.RecordBatch.from_arrays([batch["id"], column], ["id", "embedding"])


spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 2048)
table = spark.read.parquet(source).select("id", "text")
schema = StructType([table.schema["id"], StructField("embedding", ArrayType(FloatType()))])
table.mapInArrow(embed, schema).write.parquet(target)
