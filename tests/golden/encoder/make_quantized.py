#!/usr/bin/env python3
"""Writes quantized.json: rows, and what sentence-transformers' quantize_embeddings makes of them.

The last dimension is constant, and some values lie on the ranges' ends and outside of them.
"""
import json
import pathlib

import numpy
from sentence_transformers.util.quantization import quantize_embeddings

ROWS, DIMENSIONS = 23, 19

random = numpy.random.default_rng(7)
rows = random.standard_normal((ROWS, DIMENSIONS)).astype(numpy.float32)
rows[:, -1] = 0.25
rows[3, :5] = [0.0, -0.0, 1e-30, -1e-30, 40.0]
ranges = numpy.stack([rows[:9].min(axis=0), rows[:9].max(axis=0)])
ranges[:, 2] = [0.5, 0.5]

cases = [{"type": name, "ranges": bounds is not None,
          "bytes": quantize_embeddings(rows, name, ranges=bounds).tobytes().hex()}
         for name in ("int8", "uint8", "binary", "ubinary") for bounds in (None, ranges)
         if bounds is None or name.endswith("int8")]
cases += [{"type": "float16", "ranges": False, "bytes": rows.astype(numpy.float16).tobytes().hex()}]
(pathlib.Path(__file__).parent / "quantized.json").write_text(json.dumps({
    "dimensions": DIMENSIONS, "rows": rows.tobytes().hex(), "ranges": ranges.tobytes().hex(),
    "cases": cases}, indent=1) + "\n")
