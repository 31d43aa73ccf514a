"""Calls as values: what to send and how to read the answers. Pure; client.py and aio.py run them.

A call has one request, or several, which travel over one stream if the method has one. What reads
its answers may return another call, to be run in its place.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from castor import errors, reports, tensors, texts
from castor.answers import must
from castor.texts import EncodeOptions, Options, PooledOptions, RowOptions, Text, TokenizeOptions
from castor.v1 import encoder_pb2, model_pb2, server_pb2

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Call(Generic[T]):
    method: str  # "EncoderService/Encode"
    requests: Sequence[Any]
    read: Callable[[list[Any]], T | Call[T]]
    timeout: float | None = None  # seconds; None: the client's
    repeat: bool = True  # whether the server may be given it twice
    streams: bool = False  # whether there is a method of the same name and "Stream"
    quiet: bool = False  # about texts that were cut
    progress: Callable[[int], None] | None = None  # told how many requests are answered
    starts: Sequence[int] = (0,)  # the first input of each request, for errors

    def then(self, read: Callable[[Any], Any]) -> Call[Any]:
        before = self.read
        return replace(self, read=lambda answers: read(before(answers)))


def _call(
    method: str,
    inputs: Iterable[Text],
    request: Callable[[list[Text], int], Any],
    read: Callable[[list[Any]], Any],
    options: Any,
) -> Call[Any]:
    """A call of any number of texts."""
    requests, starts, end = [], [], 0
    for batch, start in texts.pack(inputs):
        requests.append(request(batch, start))
        starts.append(start)
        end = start + len(batch)
    progress = None
    if options.get("show_progress_bar") and len(requests) > 1:
        progress = _bar([*starts[1:], end])
    call: Call[Any] = Call(method, requests, read, options.get("timeout"), starts=starts)
    call.progress, call.streams = progress, method == "EncoderService/Encode"
    return call


def _encode(inputs: Any, output: str, read: Callable[[list[Any]], Any], options: Any) -> Call[Any]:
    def request(batch: list[Text], start: int) -> encoder_pb2.EncodeRequest:
        return texts.encode_request(batch, start, output, options)

    return _call("EncoderService/Encode", texts.as_list(inputs), request, read, options)


def _bar(ends: list[int]) -> Callable[[int], None]:
    import sys

    def show(answered: int) -> None:
        end = "\n" if answered == len(ends) else ""
        print(f"\r{ends[answered - 1]:,} of {ends[-1]:,} texts", end=end, file=sys.stderr)

    return show


@overload
def encode(
    inputs: str | Iterable[str],
    *,
    output_value: Literal["sentence_embedding"] = ...,
    convert_to_tensor: Literal[False] = ...,
    **options: Unpack[EncodeOptions],
) -> Call[NDArray[Any]]: ...
@overload
def encode(
    inputs: str | Iterable[str],
    *,
    output_value: Literal["sentence_embedding"] = ...,
    convert_to_tensor: Literal[True],
    **options: Unpack[EncodeOptions],
) -> Call[torch.Tensor]: ...
@overload
def encode(
    inputs: str | Iterable[str],
    *,
    output_value: str = ...,
    convert_to_tensor: bool = ...,
    **options: Unpack[EncodeOptions],
) -> Call[Any]: ...
def encode(
    inputs: str | Iterable[str],
    *,
    output_value: str = "sentence_embedding",
    convert_to_tensor: bool = False,
    **options: Unpack[EncodeOptions],
) -> Call[Any]:
    """One row for each text, in order; of one text its row. See castor.texts.EncodeOptions.

    int8 and uint8 without `ranges` use those of all the texts, as sentence-transformers does. With
    `output_value="token_embeddings"`, a list of each text's [tokens, dim], not normalised.
    """
    one, inputs = isinstance(inputs, str), texts.as_list(inputs)
    of_tokens = output_value == "token_embeddings"

    def read(rows: Any) -> Any:
        if convert_to_tensor:
            rows = [*map(tensors.to_torch, rows)] if of_tokens else tensors.to_torch(rows)
        return rows[0] if one else rows

    if of_tokens:
        options.setdefault("normalize_embeddings", False)
        return encode_tokens(inputs, **options).then(read)  # type: ignore[misc]
    if output_value != "sentence_embedding":
        raise ValueError(f"output_value {output_value!r} is not one that a server gives")
    if not inputs:
        return _no_rows(options).then(read)
    return _pooled(inputs, options, lambda rows, answers: read(rows))


def encode_with_report(
    inputs: str | Iterable[str], **options: Unpack[EncodeOptions]
) -> Call[reports.Encoded]:
    """The same, always [texts, dim], with token counts, truncation and reports."""

    def read(rows: NDArray[Any], answers: list[Any]) -> reports.Encoded:
        return reports.Encoded(
            rows,
            np.concatenate([np.array(each.token_counts, np.int64) for each in answers]),
            np.concatenate([np.array(each.truncated, np.bool_) for each in answers]),
            tuple(reports.read(each) for each in answers),
        )

    return replace(_pooled(inputs, options, read), quiet=True)


def _pooled(
    inputs: Any, options: EncodeOptions, read: Callable[[NDArray[Any], list[Any]], Any]
) -> Call[Any]:
    precision = options.get("precision", "")
    if precision not in ("int8", "uint8") or options.get("ranges") is not None:
        return _encode(inputs, "pooled", lambda answers: read(_rows(answers), answers), options)

    # Of the ranges of all the texts, which no request has alone.
    def quantize(answers: list[Any]) -> Any:
        return read(tensors.quantize(_rows(answers), precision), answers)

    return _encode(inputs, "pooled", quantize, {**options, "precision": "float32"})


def _rows(answers: list[Any]) -> NDArray[Any]:
    """A copy, for the caller to write to."""
    if not answers:
        raise ValueError("there are no texts")
    return np.concatenate([*map(_output, answers)])


def _output(answer: Any) -> NDArray[Any]:
    return tensors.from_message(answer.output)


def _with_model(
    name: str | None, use: Callable[[model_pb2.Model], Any], timeout: float | None = None
) -> Call[Any]:
    """A call made of what `use` says of the model: a value, or a call."""
    if name:
        get = model_pb2.GetModelRequest(name=name)
        return Call("ModelService/GetModel", [get], lambda answers: use(answers[0]), timeout)

    def read(answers: list[Any]) -> Any:
        found = answers[0].models
        if len(found) == 1:
            return use(found[0])
        loaded = "model must be one of " + ", ".join(model.name for model in found)
        kind = errors.InvalidFieldError if found else errors.ModelNotFoundError
        what = loaded if found else "the server has no model"
        raise errors.of_client(kind, 3 if found else 5, what, field="model")

    return Call("ModelService/ListModels", [model_pb2.ListModelsRequest()], read, timeout)


def _no_rows(options: EncodeOptions) -> Call[NDArray[Any]]:
    precision = options.get("precision", "float32")

    def empty(model: model_pb2.Model) -> NDArray[Any]:
        dim = options.get("truncate_dim") or model.dimensions or model.hidden_size
        must(0 < dim < 1 << 20, f"rows of {dim} columns")
        rows = np.zeros((0, dim), "<f2" if precision == "float16" else "<f4")
        if precision in ("float32", "float16", "bfloat16"):
            return rows
        return tensors.quantize(rows, precision, np.zeros((2, dim)))

    return _with_model(options.get("model"), empty, options.get("timeout"))


def _prompted(encode: F, doc: str, *names: str) -> F:
    """encode() with the first prompt of these names that the model has."""

    def prompted(inputs: Any, **options: Any) -> Any:
        if options.get("prompt_name") is not None or options.get("prompt") is not None:
            return encode(inputs, **options)
        inputs = inputs if isinstance(inputs, str) else texts.as_list(inputs)

        def use(model: model_pb2.Model) -> Any:
            known = {prompt.name for prompt in model.prompts}
            return with_prompt(next((name for name in names if name in known), names[0]))

        def with_prompt(name: str) -> Any:
            return encode(inputs, **{**options, "prompt_name": name})

        if len(names) == 1:  # the server knows it, if only as none
            return with_prompt(names[0])
        return _with_model(options.get("model"), use, options.get("timeout"))

    made: Any = functools.update_wrapper(prompted, encode)
    made.__doc__ = doc
    return made  # type: ignore[no-any-return]


encode_query = _prompted(encode, """encode() with the model's prompt "query", if any.""", "query")
encode_document = _prompted(
    encode,
    """encode() with the first there is of the prompts "document", "passage", "corpus".""",
    "document",
    "passage",
    "corpus",
)


def encode_tokens(
    inputs: str | Iterable[str], **options: Unpack[RowOptions]
) -> Call[list[NDArray[np.float32]]]:
    """[tokens, dim] of each text, special tokens and the prompt's included: of ColBERT its rows."""

    def read(answers: list[Any]) -> list[NDArray[np.float32]]:
        rows: list[NDArray[np.float32]] = []
        for answer in answers:
            ends = np.cumsum(answer.lengths)[:-1]
            rows += np.split(_output(answer).copy(), ends)
        return rows

    return _encode(inputs, "token_embeddings", read, options)


def encode_spans(
    document: str, spans: Sequence[tuple[int, int]], **options: Unpack[PooledOptions]
) -> Call[reports.Spans]:
    """A row for each range (begin, end) of the document's characters: late chunking."""
    if not spans:
        raise ValueError("there are no spans")

    def read(answers: list[Any]) -> reports.Spans:
        found = answers[0].spans
        tokens = [(span.begin, span.end) for span in found]
        return reports.Spans(_rows(answers), tokens, [span.truncated for span in found])

    call = replace(_encode([document], "pooled", read, options), quiet=True)
    for begin, end in spans:
        call.requests[0].spans.ranges.add(begin=begin, end=end)
    return call


def encode_sparse(inputs: str | Iterable[str], **options: Unpack[Options]) -> Call[reports.Sparse]:
    """Of a SPLADE model, or BGE-M3: one row for each text."""
    inputs = texts.as_list(inputs)

    def use(model: model_pb2.Model) -> Any:
        def read(answers: list[Any]) -> reports.Sparse:
            def joined(name: str, dtype: Any) -> NDArray[Any]:
                parts = [np.array(getattr(answer.sparse, name), dtype) for answer in answers]
                return np.concatenate([np.zeros(0, dtype), *parts])

            indices, width = joined("indices", np.int32), int(model.vocabulary_size)
            must(indices.max(initial=-1) < width, f"indices beyond the model's {width} tokens")
            ends = np.cumsum(joined("lengths", np.int64))
            indptr = np.concatenate([np.zeros(1, np.int64), ends])
            return reports.Sparse(indices, joined("values", np.float32), indptr, width)

        return _encode(inputs, "sparse", read, options)

    return _with_model(options.get("model"), use, options.get("timeout"))


def predict(
    inputs: Text | Iterable[Text],
    *,
    logits: bool = False,
    activation_fn: Callable[[Any], Any] | None = None,
    apply_softmax: bool = False,
    **options: Unpack[Options],
) -> Call[Any]:
    """Scores of a classifier or cross-encoder, for each text or pair of texts.

    [inputs], or [inputs, labels] of models with several labels; of one input its row. Of a model
    that labels tokens, [tokens, labels] of each text. As sentence-transformers has it, a tuple is
    one pair; with one label, so are two texts in a list, and single texts are an error.

    By default scores are the model's own: where it says nothing, the sigmoid with one label, and
    with several the softmax, for which sentence-transformers gives logits. `logits`: before the
    activation. Where scores tie at 1, these still differ. `activation_fn` is applied to them, as a
    tensor where torch is imported; then a softmax with `apply_softmax`, if there are several.
    """
    alone = isinstance(inputs, (str, tuple))
    given = [inputs] if alone else texts.as_list(inputs)
    output = "logits" if logits or activation_fn is not None or apply_softmax else "scores"

    def call(given: list[Any], alone: bool, output: str, of_tokens: bool = False) -> Call[Any]:
        def read(answers: list[Any]) -> Any:
            if not answers:
                return np.zeros(0, np.float32)
            lengths = np.array([length for each in answers for length in each.lengths], np.int64)
            must(of_tokens or (lengths == 1).all(), "it has rows of tokens")
            rows = _activated(_rows(answers), activation_fn, apply_softmax)
            parts: Any = np.split(rows, np.cumsum(lengths)[:-1]) if of_tokens else rows
            return parts[0] if alone else parts

        return _encode(given, output, read, options)

    def use(model: model_pb2.Model) -> Call[Any]:
        if len(model.labels) != 1 or model.token_labels:
            return call(given, alone, output, model.token_labels)
        of_one = output if logits or activation_fn else "scores"
        if not flat:
            return call(given, alone, of_one)
        if len(given) == 2:
            return call([tuple(given)], True, of_one)
        raise ValueError(f"{model.name} scores pairs of texts: give (query, text), or several")

    flat = bool(given) and all(isinstance(each, str) for each in given)
    if flat or (apply_softmax and not logits and activation_fn is None):
        return _with_model(options.get("model"), use, options.get("timeout"))
    return call(given, alone, output)


def _activated(
    rows: NDArray[Any], activation: Callable[[Any], Any] | None, softmax: bool
) -> NDArray[Any]:
    """In sentence-transformers' order. A single label's column is no dimension."""
    if activation is not None:
        rows = activation(tensors.to_torch(rows) if "torch" in sys.modules else rows)
        rows = np.asarray(rows, np.float32)
    if rows.ndim == 2 and rows.shape[1] == 1:
        return rows[:, 0]
    if softmax and rows.ndim == 2:
        powers = np.exp(rows - rows.max(-1, keepdims=True))
        rows = powers / powers.sum(-1, keepdims=True)
    return rows


def entities(
    inputs: str | Iterable[str],
    *,
    aggregation_strategy: Literal["none", "simple"] = "simple",
    ignore_labels: Sequence[str] = ("O",),
    **options: Unpack[Options],
) -> Call[Any]:
    """What a model that labels tokens finds, as transformers' token-classification pipeline.

    For each text a list of entities, with `start` and `end` in its characters; of one text its own.
    """
    if aggregation_strategy not in ("none", "simple"):
        raise ValueError(f"aggregation_strategy {aggregation_strategy!r} is not none or simple")
    one, given = isinstance(inputs, str), texts.as_list(inputs)
    if options.get("prompt") is None:
        options.setdefault("prompt_name", "")  # offsets are then the texts'
    cut: Any = {key: value for key, value in options.items() if key != "kernel"}

    def use(model: model_pb2.Model) -> Any:
        if not model.token_labels:
            raise ValueError(f"{model.name} does not label tokens")

        def tokenized(answers: list[Any]) -> Any:
            rows = np.concatenate([np.zeros((0, len(model.labels))), *map(_output, answers)])

            def read(found: list[reports.Tokens]) -> Any:
                must(sum(len(each.ids) for each in found) == len(rows), "it has other tokens")
                parts = np.split(rows, np.cumsum([len(each.ids) for each in found])[:-1])
                made = [
                    reports.entities(*each, list(model.labels), aggregation_strategy, ignore_labels)
                    for each in zip(given, parts, found)
                ]
                return made[0] if one else made

            return tokenize(given, **{**cut, "truncate": True}).then(read)

        return _encode(given, "scores", lambda answers: answers, options).then(tokenized)

    return _with_model(options.get("model"), use, options.get("timeout"))


class Ranked(TypedDict, total=False):
    """As CrossEncoder.rank has it."""

    corpus_id: int
    score: float
    text: str


def rank(
    query: str,
    documents: Iterable[str],
    top_k: int | None = None,
    return_documents: bool = False,
    **options: Unpack[Options],
) -> Call[list[Ranked]]:
    """The documents by a cross-encoder's or late-interaction model's score, best first."""
    if not isinstance(query, str) or isinstance(documents, str):
        raise TypeError("query must be one text, and documents several")
    documents = texts.as_list(documents, "documents")

    def request(batch: list[Text], start: int) -> encoder_pb2.RerankRequest:
        paired = encoder_pb2.TextBatch()
        texts.put_texts(paired, batch, start)
        made = encoder_pb2.RerankRequest(query=query, documents=paired.pairs)
        texts.put(made, options)
        return made

    def read(answers: list[Any]) -> list[Ranked]:
        found = [
            (start + each.index, each.score, each.logit)
            for answer, start in zip(answers, call.starts)
            for each in answer.results
        ]
        found.sort(key=lambda each: (math.isnan(each[2]), -each[2], each[0]))
        ranked: list[Ranked] = [{"corpus_id": n, "score": score} for n, score, _ in found[:top_k]]
        if return_documents:
            for each in ranked:
                each["text"] = documents[each["corpus_id"]]
        return ranked

    pairs = [(query, document) for document in documents]
    call: Call[list[Ranked]] = _call("EncoderService/Rerank", pairs, request, read, options)
    return call


def tokenize(
    inputs: str | Iterable[str],
    *,
    add_special_tokens: bool = True,
    return_tokens: bool = False,
    **options: Unpack[TokenizeOptions],
) -> Call[Any]:
    """castor.Tokens of each text; of one text its own."""

    def request(batch: list[Text], start: int) -> encoder_pb2.TokenizeRequest:
        made = encoder_pb2.TokenizeRequest()
        texts.put_texts(made.texts, batch, start)
        kinds = {"add_special_tokens": add_special_tokens, "return_tokens": return_tokens}
        texts.put(made, {**kinds, **options})
        return made

    def read(answers: list[Any]) -> Any:
        found = [tokens for answer in answers for tokens in reports.read_tokens(answer)]
        return found[0] if isinstance(inputs, str) else found

    return _call("EncoderService/Tokenize", texts.as_list(inputs), request, read, options)


def detokenize(
    ids: Sequence[int] | Sequence[Sequence[int]],
    *,
    model: str | None = None,
    skip_special_tokens: bool = False,
    timeout: float | None = None,
) -> Call[Any]:
    """The text of a sequence of token ids, or of each of several."""
    one = len(ids) > 0 and np.ndim(ids[0]) == 0
    sequences: Any = [ids] if one else ids
    request = encoder_pb2.DetokenizeRequest(model=model, skip_special_tokens=skip_special_tokens)
    for sequence in sequences:
        request.tokens.ids.extend(sequence)
        request.tokens.lengths.append(len(sequence))

    def read(answers: list[Any]) -> Any:
        return answers[0].texts[0] if one else [text for a in answers for text in a.texts]

    return Call("EncoderService/Detokenize", [request] if sequences else [], read, timeout)


def models(*, timeout: float | None = None) -> Call[list[model_pb2.Model]]:
    """Every model's name, dimensions, prompts, outputs: see model.proto."""
    request = model_pb2.ListModelsRequest()
    return Call("ModelService/ListModels", [request], lambda a: list(a[0].models), timeout)


def model(name: str = "") -> Call[model_pb2.Model]:
    """One model; default: the only one."""
    return _with_model(name, lambda found: found)


def server_info(*, timeout: float | None = None) -> Call[server_pb2.ServerInfo]:
    """Devices, kernels, limits, version: see server.proto."""
    request = server_pb2.GetServerInfoRequest()
    return Call("ServerService/GetServerInfo", [request], lambda a: a[0], timeout)
