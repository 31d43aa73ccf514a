"""Whether answers fit their requests: what a server says is believed only once it is checked. Pure.

Whatever is wrong raises castor.WrongAnswerError, so that what reads answers need not look again.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from castor import tensors
from castor.errors import TruncationWarning, from_status, wrong
from castor.v1 import encoder_pb2, tensor_pb2

_MOST = 1 << 31  # of a dimension or a count: what no model has
_ROWS = {
    "INT8": tensor_pb2.INT8,
    "UINT8": tensor_pb2.UINT8,
    "BINARY": tensor_pb2.INT8,
    "UBINARY": tensor_pb2.UINT8,
    "FLOAT16": tensor_pb2.FLOAT16,
    "BFLOAT16": tensor_pb2.BFLOAT16,
}


def must(condition: Any, what: str) -> None:
    if not condition:
        raise wrong(what)


class Checker:
    """Of the answers of one call, whose rows are alike. Warns of texts that were cut."""

    def __init__(self, quiet: bool = False) -> None:
        self._width: int | None = None
        self._quiet = quiet

    def check(self, request: Any, answer: Any, start: int = 0) -> None:
        """`start`: the number of the request's first input."""
        must(answer is not None, "it is not a message")
        if "error" in answer.DESCRIPTOR.fields_by_name and answer.HasField("error"):
            must(answer.error.code > 0, "its error has no code")
            raise from_status(answer.error)
        if getattr(request, "request_id", ""):
            must(answer.request_id == request.request_id, f"request_id is {answer.request_id!r}")
        kind = type(answer).__name__
        if kind == "EncodeResponse":
            self._alike(_encoded(request, answer))
        elif check := _CHECKS.get(kind):
            check(request, answer)
        cut = [start + n for n, each in enumerate(getattr(answer, "truncated", ())) if each]
        if cut and not self._quiet and not request.HasField("truncate"):
            self._quiet = True
            _warn(f"input {cut[0]} is longer than the model or max_tokens allows, and was cut")

    def _alike(self, width: int | None) -> None:
        must(self._width in (None, width), f"rows of {width} columns came after {self._width}")
        self._width = width


def _warn(message: str) -> None:
    """At the line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("castor."):
        level, frame = level + 1, frame.f_back
    text = f"{message}; truncate=True says that this is meant, truncate=False refuses such texts"
    warnings.warn(text, TruncationWarning, stacklevel=level)


def _counts(name: str, values: Sequence[int], count: int, total: int | None = None) -> None:
    """One for each of `count` inputs, and together `total`."""
    must(len(values) == count, f"{name} has {len(values)} entries, not {count}")
    fits = not values or (0 <= min(values) and max(values) < _MOST)
    must(fits, f"{name} has one that is negative, or beyond all bounds")
    must(total is None or sum(values) == total, f"{name} add up to {sum(values)}, not {total}")


def check_tensor(name: str, tensor: tensor_pb2.Tensor, dtype: int) -> list[int]:
    """Its shape."""
    shape = list(tensor.shape)
    must(tensor.WhichOneof("data") == "raw", f"{name} has no elements")
    must(tensor.dtype == dtype, f"{name} has dtype {tensor.dtype}, not {dtype}")
    must(0 < len(shape) <= 8 and min(shape) >= 0, f"{name} has the shape {shape}")
    size, have = math.prod(shape) * tensors.item_size(dtype), len(tensor.raw)
    must(size == have, f"{name} of shape {shape} has {have} bytes, not {size}")
    return shape


def _encoded(request: Any, answer: Any) -> int | None:
    """Returns the rows' width."""
    texts, spans = len(request.texts.texts), len(request.spans.ranges)
    output = encoder_pb2.EncodeOutput.Name(request.output)
    _counts("token_counts", answer.token_counts, texts)
    _counts("truncated", answer.truncated, texts)
    if output == "SPARSE":
        _sparse(answer.sparse, texts)
        return None
    made = request.DESCRIPTOR.enum_types_by_name["OutputType"].values[request.output_type].name
    of_rows = output in ("POOLED", "TOKEN_EMBEDDINGS")
    dtype = _ROWS.get(made, tensor_pb2.FLOAT32) if of_rows else tensor_pb2.FLOAT32
    shape = check_tensor("output", answer.output, dtype)
    must(len(shape) == 2 and shape[1] > 0, f"output has the shape {shape}, not [rows, columns]")
    rows, width = shape
    _counts("lengths", answer.lengths, texts, rows)
    lengths = list(answer.lengths)
    if output == "TOKEN_EMBEDDINGS":  # of ColBERT not of every token
        fits = all(a <= b for a, b in zip(lengths, answer.token_counts))
        must(fits, "lengths are more than token_counts")
    elif spans:
        asked = [0] * texts
        for each in request.spans.ranges:
            asked[each.sequence] += 1
        must(lengths == asked, "lengths are not how many ranges each text has")
        must(len(answer.spans) == spans, f"spans has {len(answer.spans)} entries, not {spans}")
        for span, asked_for in zip(answer.spans, request.spans.ranges):
            most = answer.token_counts[asked_for.sequence]
            must(0 <= span.begin <= span.end <= most, f"spans has {span.begin} to {span.end}")
    else:
        of_tokens = not of_rows and lengths == list(answer.token_counts)
        must(of_tokens or lengths == [1] * texts, "lengths are not 1 for each text")
    if of_rows and request.dimensions:
        bits = made in ("BINARY", "UBINARY")
        want = -(-request.dimensions // 8) if bits else request.dimensions
        must(width == want, f"output has {width} columns, not {want}")
    if not of_rows:
        must(len(answer.labels) in (0, width), f"labels has {len(answer.labels)}, not {width}")
    return width


def _sparse(rows: Any, texts: int) -> None:
    must(len(rows.indices) == len(rows.values), "sparse.indices and sparse.values differ in length")
    _counts("sparse.lengths", rows.lengths, texts, len(rows.values))
    indices, values = np.array(rows.indices, np.int64), np.array(rows.values)
    must((np.isfinite(values) & (values > 0)).all(), "sparse.values has one that is not > 0")
    must((indices >= 0).all(), "sparse.indices has a negative one")
    first = np.isin(np.arange(len(indices)), np.cumsum([0, *rows.lengths]))
    must((first[1:] | (np.diff(indices) > 0)).all(), "sparse.indices do not ascend in a row")


def _ranked(request: Any, answer: Any) -> None:
    texts, found = len(request.documents), answer.results
    places = [each.index for each in found]
    want = min(request.top_n or texts, texts)
    must(len(places) == want, f"results has {len(places)} entries, not {want}")
    known = len({*places}) == want and all(0 <= place < texts for place in places)
    must(known, "results has a document twice, or one that was not sent")
    last = [math.isnan(each.logit) for each in found]
    order = [(nan, 0 if nan else -each.logit, each.index) for nan, each in zip(last, found)]
    must(order == sorted(order), "results are not in the order of their logits")
    _counts("token_counts", answer.token_counts, texts)
    _counts("truncated", answer.truncated, texts)


def _tokenized(request: Any, answer: Any) -> None:
    texts, tokens = len(request.texts.texts), len(answer.ids)
    _counts("lengths", answer.lengths, texts, tokens)
    _counts("truncated", answer.truncated, texts)
    for name in ("ids", "type_ids", "special", "pair", "character_begins", "character_ends"):
        _counts(name, getattr(answer, name), tokens)
    must(len(answer.tokens) == tokens * request.return_tokens, "tokens' number is not that of ids")
    fits = all(a <= b for a, b in zip(answer.character_begins, answer.character_ends))
    must(fits, "character_ends has one before its begin")


def _detokenized(request: Any, answer: Any) -> None:
    want = len(request.tokens.lengths)
    must(len(answer.texts) == want, f"texts has {len(answer.texts)} entries, not {want}")


def _attended(request: Any, answer: Any) -> None:
    leading, value = list(request.query.shape)[:-1], list(request.value.shape)
    width = value[-1] if value else request.value_dim
    if request.HasField("output"):
        must(answer.output.shared_memory == request.output, "output is elsewhere")
    else:
        shape = check_tensor("output", answer.output, request.query.dtype)
        must(shape == [*leading, width], f"output has the shape {shape}, not {[*leading, width]}")
    if request.return_log_sum_exp:
        shape = check_tensor("log_sum_exp", answer.log_sum_exp, tensor_pb2.FLOAT32)
        must(shape == leading, f"log_sum_exp has the shape {shape}, not {leading}")


def _described(model: Any) -> None:
    must(model.name, "a model has no name")
    for name in ("hidden_size", "dimensions", "max_tokens", "vocabulary_size"):
        must(0 <= getattr(model, name) < _MOST, f"{name} of {model.name} is {getattr(model, name)}")


def _listed(request: Any, answer: Any) -> None:
    for model in answer.models:
        _described(model)
    names = {model.name for model in answer.models}
    must(len(names) == len(answer.models), "two models have one name")


def _server(request: Any, answer: Any) -> None:
    prefix = answer.limits.shared_memory_key_prefix or "/"  # of a path of ours
    fits = prefix[0] == "/" and "/" not in prefix[1:] and prefix.isprintable() and len(prefix) < 99
    must(fits, f"limits.shared_memory_key_prefix is {prefix!r}")


_CHECKS = {
    "RerankResponse": _ranked,
    "TokenizeResponse": _tokenized,
    "DetokenizeResponse": _detokenized,
    "AttendResponse": _attended,
    "ListModelsResponse": _listed,
    "Model": lambda request, answer: _described(answer),
    "ServerInfo": _server,
}
