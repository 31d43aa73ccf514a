"""Checks answers against their requests before anything reads them.

A mismatch raises castor.WrongAnswerError, so readers need no checks of their own.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from castor import tensors
from castor.errors import TruncationWarning, WrongAnswerError
from castor.status import from_status
from castor.v1 import encoder_pb2, tensor_pb2

_MOST = 1 << 31  # beyond any real dimension or count
# Others have the same name.
_DTYPES = {"OUTPUT_TYPE_DEFAULT": "FLOAT32", "BINARY": "INT8", "UBINARY": "UINT8"}


def must(condition: Any, what: str) -> None:
    if not condition:
        raise WrongAnswerError(f"the answer does not fit the request: {what}")


class Checker:
    """Checks the answers of one call, whose rows are alike. Warns once of texts that were cut."""

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
        if check := _CHECKS.get(type(answer).__name__):
            width = check(request, answer)
            must(self._width in (None, width), f"rows of {width} columns after {self._width}")
            self._width = width
        cut = [start + n for n, each in enumerate(getattr(answer, "truncated", ())) if each]
        if cut and not self._quiet and not request.HasField("truncate"):
            self._quiet = True
            _warn(f"input {cut[0]} is longer than the model or max_tokens allows, and was cut")


def _warn(message: str) -> None:
    """Warns at the line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("castor."):
        level, frame = level + 1, frame.f_back
    text = f"{message}; truncate=True says that this is meant, truncate=False refuses such texts"
    warnings.warn(text, TruncationWarning, stacklevel=level)


def _counts(answer: Any, names: str, count: int, total: int | None = None) -> None:
    """Checks fields that have one number for each of `count` inputs, with this sum."""
    for name in names.split():
        values = getattr(answer, name)
        must(len(values) == count, f"{name} has {len(values)} entries, not {count}")
        fits = not values or (0 <= min(values) and max(values) < _MOST)
        must(fits, f"{name} has a negative or absurdly large entry")
        must(total is None or sum(values) == total, f"{name} add up to {sum(values)}, not {total}")


def _tensor(name: str, tensor: tensor_pb2.Tensor, dtype: int, want: Sequence[int | None]) -> None:
    """Checks dtype, shape and size. None in `want` is any length."""
    shape = list(tensor.shape)
    must(tensor.WhichOneof("data") == "raw", f"{name} has no elements")
    must(tensor.dtype == dtype, f"{name} has dtype {tensor.dtype}, not {dtype}")
    fits = len(shape) == len(want) and all(b in (None, a) for a, b in zip(shape, want))
    must(fits and min(shape, default=0) >= 0, f"{name} has the shape {shape}, not {[*want]}")
    size, have = math.prod(shape) * np.dtype(tensors.DTYPES[dtype]).itemsize, len(tensor.raw)
    must(size == have, f"{name} of shape {shape} has {have} bytes, not {size}")


def _encoded(request: Any, answer: Any) -> int | None:
    """Returns the rows' width."""
    texts, ranges = len(request.texts.texts), request.spans.ranges
    _counts(answer, "token_counts truncated", texts)
    if request.output == encoder_pb2.SPARSE:
        _sparse(answer.sparse, texts)
        return None
    of_rows = request.output in (encoder_pb2.POOLED, encoder_pb2.TOKEN_EMBEDDINGS)
    kind = encoder_pb2.EncodeRequest.OutputType.Name(request.output_type)
    dtype = tensor_pb2.DataType.Value(_DTYPES.get(kind, kind))
    asked = -(-request.dimensions // 8) if "BINARY" in kind else request.dimensions
    _tensor("output", answer.output, dtype, [None, asked if of_rows and asked else None])
    rows, width = answer.output.shape
    must(width > 0, "output has no columns")
    _counts(answer, "lengths", texts, rows)
    lengths, tokens = list(answer.lengths), list(answer.token_counts)
    if request.output == encoder_pb2.TOKEN_EMBEDDINGS:  # ColBERT drops some tokens
        must((np.array(lengths) <= tokens).all(), "lengths are more than token_counts")
    elif ranges:  # of one text
        must(lengths == [len(ranges)], f"lengths are {lengths}, not {len(ranges)} ranges")
        must(len(answer.spans) == len(ranges), f"spans has {len(answer.spans)} entries")
        for span in answer.spans:
            fits = 0 <= span.begin <= span.end <= tokens[0]
            must(fits, f"spans has {span.begin} to {span.end}")
    else:
        fits = lengths == [1] * texts or (not of_rows and lengths == tokens)
        must(fits, "lengths are not 1 for each text")
    must(of_rows or len(answer.labels) in (0, width), f"labels has {len(answer.labels)}")
    return int(width)


def _sparse(rows: Any, texts: int) -> None:
    must(len(rows.indices) == len(rows.values), "sparse.indices and sparse.values differ in length")
    _counts(rows, "lengths", texts, len(rows.values))
    indices, values = np.array(rows.indices, np.int64), np.array(rows.values)
    must((np.isfinite(values) & (values > 0)).all(), "sparse.values has a value that is not > 0")
    must((indices >= 0).all(), "sparse.indices has a negative index")
    first = np.isin(np.arange(len(indices)), np.cumsum([0, *rows.lengths]))
    must((first[1:] | (np.diff(indices) > 0)).all(), "sparse.indices do not ascend in a row")


def _ranked(request: Any, answer: Any) -> None:
    texts, places = len(request.documents), [each.index for each in answer.results]
    must(sorted(places) == [*range(texts)], "results does not have each document once")
    order = [
        (True, 0, each.index) if math.isnan(each.logit) else (False, -each.logit, each.index)
        for each in answer.results
    ]
    must(order == sorted(order), "results are not in the order of their logits")
    _counts(answer, "token_counts truncated", texts)


def _tokenized(request: Any, answer: Any) -> None:
    texts, tokens = len(request.texts.texts), len(answer.ids)
    _counts(answer, "lengths", texts, tokens)
    _counts(answer, "truncated", texts)
    _counts(answer, "ids type_ids special pair character_begins character_ends", tokens)
    must(len(answer.tokens) == tokens * request.return_tokens, "tokens and ids differ in number")
    fits = all(a <= b for a, b in zip(answer.character_begins, answer.character_ends))
    must(fits, "character_ends has an end before its begin")


def _detokenized(request: Any, answer: Any) -> None:
    want = len(request.tokens.lengths)
    must(len(answer.texts) == want, f"texts has {len(answer.texts)} entries, not {want}")


def _attended(request: Any, answer: Any) -> None:
    leading, value = list(request.query.shape)[:-1], list(request.value.shape)
    if request.HasField("output"):
        must(answer.output.shared_memory == request.output, "output is elsewhere")
    else:
        shape = [*leading, value[-1] if value else request.value_dim]
        _tensor("output", answer.output, request.query.dtype, shape)
    if request.return_log_sum_exp:
        _tensor("log_sum_exp", answer.log_sum_exp, tensor_pb2.FLOAT32, leading)


def _listed(_: Any, answer: Any) -> None:
    models = [*getattr(answer, "models", [answer])]
    must(all(model.name for model in models), "a model has no name")
    must(len({model.name for model in models}) == len(models), "two models have one name")
    for model in models:
        for name in ("hidden_size", "dimensions", "max_tokens", "vocabulary_size"):
            value = getattr(model, name)
            must(0 <= value < _MOST, f"{name} of {model.name} is {value}")


def _server(_: Any, answer: Any) -> None:
    prefix = answer.limits.shared_memory_key_prefix or "/"  # it becomes part of a path
    fits = prefix[0] == "/" and "/" not in prefix[1:] and prefix.isprintable() and len(prefix) < 99
    must(fits, f"limits.shared_memory_key_prefix is {prefix!r}")


_CHECKS = {
    "EncodeResponse": _encoded,
    "RerankResponse": _ranked,
    "TokenizeResponse": _tokenized,
    "DetokenizeResponse": _detokenized,
    "AttendResponse": _attended,
    "ListModelsResponse": _listed,
    "Model": _listed,
    "ServerInfo": _server,
}
