"""The clients' methods that take texts or names, as coroutines over a Session.

Options are keywords of texts.py. `timeout` is the session's.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from castor import reports, tensors, texts
from castor.answers import must
from castor.session import Session
from castor.texts import EncodeOptions, Options, Text, TokenizeOptions
from castor.v1 import encoder_pb2, model_pb2, server_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Any])


async def _ask(
    session: Session, kind: type[Any], inputs: Sequence[Text], options: Any, quiet: bool = False
) -> list[Any]:
    """The answers to any number of texts, in requests of this kind."""
    packed = [entry async for entry in texts.pack(texts.each(inputs), kind, options)]
    requests, starts = [made for made, _ in packed], [start for _, start in packed]
    method, answers = "EncoderService/" + kind.__name__.removesuffix("Request"), list[Any]()
    async for answer in session.ask(method, requests, starts, quiet=quiet):
        answers.append(answer)
        if options.get("show_progress_bar") and len(requests) > 1:
            done = [*starts, len(inputs)][len(answers)]
            end = "\n" if done == len(inputs) else ""
            print(f"\r{done:,} of {len(inputs):,} texts", end=end, file=sys.stderr)
    return answers


async def _encode(
    session: Session, inputs: Any, output: str, options: Any, quiet: bool = False
) -> list[Any]:
    inputs, options = texts.as_list(inputs), {"output": output, **options}
    return await _ask(session, encoder_pb2.EncodeRequest, inputs, options, quiet)


async def encode(
    session: Session,
    inputs: str | Iterable[str],
    *,
    output_value: str = "sentence_embedding",
    convert_to_tensor: bool = False,
    **options: Unpack[EncodeOptions],
) -> Any:
    """One row for each text, in order; for one text its row. See castor.texts.EncodeOptions.

    int8 and uint8 without `ranges` use those of all the texts, as sentence-transformers does. With
    `output_value="token_embeddings"`, a list of each text's [tokens, dim], not normalised.
    """
    one, inputs = isinstance(inputs, str), texts.as_list(inputs)
    rows: Any
    if output_value == "token_embeddings":
        options.setdefault("normalize_embeddings", False)
        rows = await encode_tokens(session, inputs, **options)
    elif output_value != "sentence_embedding":
        raise ValueError(f"output_value {output_value!r} is not one that a server gives")
    elif inputs:
        rows, _ = await _pooled(session, inputs, options)
    else:
        rows = await _no_rows(session, options)
    if convert_to_tensor:
        of_tokens = isinstance(rows, list)
        rows = [*map(tensors.to_torch, rows)] if of_tokens else tensors.to_torch(rows)
    return rows[0] if one else rows


async def encode_with_report(
    session: Session, inputs: str | Iterable[str], **options: Unpack[EncodeOptions]
) -> reports.Encoded:
    """The same, always [texts, dim], with token counts, truncation and reports."""
    rows, answers = await _pooled(session, inputs, options, quiet=True)
    return reports.Encoded(
        rows,
        np.concatenate([np.array(each.token_counts, np.int64) for each in answers]),
        np.concatenate([np.array(each.truncated, np.bool_) for each in answers]),
        tuple(reports.read(each) for each in answers),
    )


async def _pooled(
    session: Session, inputs: Any, options: Any, quiet: bool = False
) -> tuple[NDArray[Any], list[Any]]:
    """The rows, and the answers that they come from."""
    precision = options.get("precision", "")
    if precision not in ("int8", "uint8") or options.get("ranges") is not None:
        answers = await _encode(session, inputs, "pooled", options, quiet)
        return _rows(answers), answers
    # Quantize here: the ranges are those of all the texts, which no single request has.
    options = {**options, "precision": "float32"}
    answers = await _encode(session, inputs, "pooled", options, quiet)
    return tensors.quantize(_rows(answers), precision), answers


def _rows(answers: list[Any]) -> NDArray[Any]:
    """A copy, for the caller to write to."""
    if not answers:
        raise ValueError("there are no texts")
    return np.concatenate([tensors.from_message(each.output) for each in answers])


async def _no_rows(session: Session, options: EncodeOptions) -> NDArray[Any]:
    model, precision = await session.model(options.get("model")), options.get("precision")
    dim = options.get("truncate_dim") or model.dimensions or model.hidden_size
    must(0 < dim < 1 << 20, f"rows of {dim} columns")
    rows = np.zeros((0, dim), "<f2" if precision == "float16" else "<f4")
    if precision in (None, "", "float32", "float16", "bfloat16"):
        return rows
    return tensors.quantize(rows, precision, np.zeros((2, dim)))


def _prompted(encode: F, *names: str) -> F:
    """encode() with the first prompt of these names that the model has."""

    async def prompted(session: Session, inputs: Any, **options: Any) -> Any:
        if options.get("prompt_name") is None and options.get("prompt") is None:
            options["prompt_name"] = names[0]  # every server accepts this name
            if len(names) > 1:
                model = await session.model(options.get("model"))
                known = [name for name in names if name in {each.name for each in model.prompts}]
                options["prompt_name"] = [*known, names[0]][0]
        elif not options.get("task"):
            model = await session.model(options.get("model"))
            if names[0] in model.tasks:  # a Router's routes, which another prompt would not name
                options["task"] = names[0]
        return await encode(session, inputs, **options)

    made: Any = functools.update_wrapper(prompted, encode)
    made.__doc__ = f"encode() with the first prompt that there is of {', '.join(names)}, if any."
    return made  # type: ignore[no-any-return]


encode_query = _prompted(encode, "query")
encode_document = _prompted(encode, "document", "passage", "corpus")


async def encode_tokens(
    session: Session, inputs: str | Iterable[str], **options: Unpack[EncodeOptions]
) -> list[NDArray[np.float32]]:
    """[tokens, dim] for each text, with special tokens and prompt; from ColBERT its own rows."""
    answers = await _encode(session, inputs, "token_embeddings", options)
    rows = [reports.split(_rows([each]), each.lengths) for each in answers]
    return [*itertools.chain(*rows)]


async def encode_spans(
    session: Session,
    document: str,
    spans: Sequence[tuple[int, int]],
    **options: Unpack[EncodeOptions],
) -> reports.Spans:
    """A row for each range (begin, end) of the document's characters: late chunking."""
    if not spans:
        raise ValueError("there are no spans")
    given = {"output": "pooled", **options}
    request = texts.request(encoder_pb2.EncodeRequest, [texts.checked(document, 0)], 0, given)
    for begin, end in spans:
        request.spans.ranges.add(begin=begin, end=end)
    answer = await session.one("EncoderService/Encode", request, quiet=True)
    tokens = [(span.begin, span.end) for span in answer.spans]
    return reports.Spans(_rows([answer]), tokens, [span.truncated for span in answer.spans])


async def encode_sparse(
    session: Session, inputs: str | Iterable[str], **options: Unpack[Options]
) -> reports.Sparse:
    """One row for each text, by a SPLADE model, or BGE-M3."""
    inputs = texts.as_list(inputs)
    width = int((await session.model(options.get("model"))).vocabulary_size)
    answers = await _encode(session, inputs, "sparse", options)

    def joined(name: str, dtype: Any) -> NDArray[Any]:
        parts = [np.array(getattr(answer.sparse, name), dtype) for answer in answers]
        return np.concatenate([np.zeros(0, dtype), *parts])

    indices = joined("indices", np.int32)
    must(indices.max(initial=-1) < width, f"indices beyond the model's {width} tokens")
    indptr = np.cumsum([0, *joined("lengths", np.int64)])
    return reports.Sparse(indices, joined("values", np.float32), indptr, width)


def _softmax(rows: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)  # type: ignore[no-any-return]


async def predict(
    session: Session,
    inputs: Text | Iterable[Text],
    *,
    logits: bool = False,
    activation_fn: Callable[[Any], Any] | None = None,
    apply_softmax: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Scores of a classifier or cross-encoder, for each text or pair of texts.

    [inputs], or [inputs, labels] with several labels; for one input its row. A token classifier
    gives [tokens, labels] for each text. As sentence-transformers has it, a tuple is
    one pair; with one label, so are two texts in a list, and single texts are an error.

    By default scores are the model's own: where it says nothing, the sigmoid with one label, and
    with several the softmax, for which sentence-transformers gives logits. `logits`: before the
    activation. Where scores tie at 1, these still differ. `activation_fn` is applied to them, as a
    tensor where torch is imported; then a softmax with `apply_softmax`, if there are several.
    """
    one = isinstance(inputs, (str, tuple))
    given = [inputs] if one else texts.as_list(inputs)
    flat, of_tokens = bool(given) and all(isinstance(each, str) for each in given), False
    logits |= activation_fn is not None
    if flat or (apply_softmax and not logits):
        model = await session.model(options.get("model"))
        of_tokens = model.token_labels
        if len(model.labels) != 1 or of_tokens:
            logits |= apply_softmax
        elif flat and len(given) == 2:
            given, one = [tuple(given)], True
        elif flat:
            raise ValueError(f"{model.name} scores pairs of texts: give (query, text), or several")
    answers = await _encode(session, given, "logits" if logits else "scores", options)
    if not answers:
        return np.zeros(0, np.float32)
    lengths = [length for each in answers for length in each.lengths]
    must(of_tokens or {*lengths} == {1}, "it has rows of tokens")
    rows = _rows(answers)
    if activation_fn is not None:  # in sentence-transformers' order
        rows = activation_fn(tensors.to_torch(rows) if "torch" in sys.modules else rows)
        rows = np.asarray(rows, np.float32)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    elif apply_softmax and rows.ndim == 2:
        rows = _softmax(rows)
    parts: Any = reports.split(rows, lengths) if of_tokens else rows
    return parts[0] if one else parts


async def classify(
    session: Session,
    inputs: str | Iterable[str],
    labels: Sequence[str],
    *,
    multi_label: bool = False,
    hypothesis_template: str = "This example is {}.",
    **options: Unpack[Options],
) -> Any:
    """How well labels that the caller names fit each text, by a model of entailment (zero-shot).

    As transformers' pipeline of zero-shot-classification: a dict for each text with `sequence`,
    `labels` and `scores`, the best first; for one text its own. The hypothesis of a label is the
    template with the label in it. Scores of a text add up to 1, unless `multi_label`: then each
    label is judged by itself.
    """
    given, labels = texts.as_list(inputs), texts.as_list(labels, "labels")
    hypotheses = [hypothesis_template.format(label) for label in labels]
    if not labels or len({*hypotheses}) < len(labels):
        raise ValueError("labels must be given, each once, and hypothesis_template must have a {}")
    model = await session.model(options.get("model"))
    found = [n for n, name in enumerate(model.labels) if name.lower().startswith("entail")]
    if not found or model.token_labels:
        raise ValueError(f"{model.name} has no label for entailment: it is no model of inference")
    if not given:
        return []
    pairs: list[Text] = [(text, hypothesis) for text in given for hypothesis in hypotheses]
    answers = await _encode(session, pairs, "logits", options)
    rows = _rows(answers).reshape(len(given), len(labels), -1)
    if multi_label or len(labels) == 1:  # against the first label that is not entailment
        against = rows[..., -1 if found[0] == 0 else 0]
        scores = 1 / (1 + np.exp(against - rows[..., found[0]]))
    else:
        scores = _softmax(rows[..., found[0]])
    made = []
    for text, each in zip(given, scores):
        order = np.argsort(-each, kind="stable")
        ordered = [labels[n] for n in order]
        made.append({"sequence": text, "labels": ordered, "scores": each[order].tolist()})
    return made[0] if isinstance(inputs, str) else made


async def entities(
    session: Session,
    inputs: str | Iterable[str],
    *,
    aggregation_strategy: Literal["none", "simple"] = "simple",
    ignore_labels: Sequence[str] = ("O",),
    **options: Unpack[Options],
) -> Any:
    """The entities that a token classifier finds, as transformers' pipeline reports them.

    A list for each text, with `start` and `end` in characters; for one text its own list.
    """
    if aggregation_strategy not in ("none", "simple"):
        raise ValueError(f"aggregation_strategy {aggregation_strategy!r} is not none or simple")
    one, given = isinstance(inputs, str), texts.as_list(inputs)
    model = await session.model(options.get("model"))
    if not model.token_labels:
        raise ValueError(f"{model.name} does not label tokens")
    if options.get("prompt") is None:
        options.setdefault("prompt_name", "")  # offsets then count in the text alone
    scores = [_rows([each]) for each in await _encode(session, given, "scores", options)]
    cut: Any = {key: value for key, value in options.items() if key != "kernel"}
    tokens = await tokenize(session, given, **{**cut, "truncate": True})
    lengths = [len(each.ids) for each in tokens]
    empty = np.zeros((0, len(model.labels)))
    must(sum(lengths) == sum(map(len, scores)), "it has other tokens")
    labels, parts = list(model.labels), reports.split(np.concatenate([empty, *scores]), lengths)
    made = [
        reports.entities(*each, labels, aggregation_strategy, ignore_labels)
        for each in zip(given, parts, tokens)
    ]
    return made[0] if one else made


def ranked(
    documents: Sequence[str], order: Iterable[tuple[int, float]], with_texts: bool
) -> list[dict[str, Any]]:
    """The results of rank(), from documents' numbers and scores in order."""
    found: list[dict[str, Any]] = [{"corpus_id": n, "score": score} for n, score in order]
    for each in found if with_texts else ():
        each["text"] = documents[each["corpus_id"]]
    return found


async def rank(
    session: Session,
    query: str,
    documents: Iterable[str],
    top_k: int | None = None,
    return_documents: bool = False,
    instruction: str | None = None,
    **options: Unpack[Options],
) -> list[dict[str, Any]]:
    """The documents by a cross-encoder's or late-interaction model's score, best first.

    `instruction`: what a document must do for the query, for models that take one.
    """
    if not isinstance(query, str) or isinstance(documents, str):
        raise TypeError("query must be one text, and documents several")
    documents = texts.as_list(documents, "documents")
    pairs = [(query, document) for document in documents]
    given = {"instruction": instruction, **options}
    answers = await _ask(session, encoder_pb2.RerankRequest, pairs, given)
    starts = itertools.accumulate((len(each.truncated) for each in answers), initial=0)
    found = [
        (start + each.index, each.score, each.logit)
        for answer, start in zip(answers, starts)
        for each in answer.results
    ]
    found.sort(key=lambda each: (math.isnan(each[2]), -each[2], each[0]))
    return ranked(documents, [each[:2] for each in found[:top_k]], return_documents)


async def tokenize(
    session: Session,
    inputs: str | Iterable[str],
    *,
    add_special_tokens: bool = True,
    return_tokens: bool = False,
    **options: Unpack[TokenizeOptions],
) -> Any:
    """castor.Tokens for each text; for one text its own."""
    given = {"add_special_tokens": add_special_tokens, "return_tokens": return_tokens, **options}
    answers = await _ask(session, encoder_pb2.TokenizeRequest, texts.as_list(inputs), given)
    found = [tokens for answer in answers for tokens in reports.read_tokens(answer)]
    return found[0] if isinstance(inputs, str) else found


async def detokenize(
    session: Session,
    ids: Sequence[int] | Sequence[Sequence[int]],
    *,
    model: str | None = None,
    skip_special_tokens: bool = False,
    timeout: float | None = None,
) -> Any:
    """The text of a sequence of token ids, or of each of several."""
    if not len(ids):
        return []
    one = np.ndim(ids[0]) == 0
    request = encoder_pb2.DetokenizeRequest(model=model, skip_special_tokens=skip_special_tokens)
    sequences: Any = [ids] if one else ids
    for sequence in sequences:
        request.tokens.ids.extend(sequence)
        request.tokens.lengths.append(len(sequence))
    found = [*(await session.one("EncoderService/Detokenize", request)).texts]
    return found[0] if one else found


async def load_model(
    session: Session,
    name: str,
    directory: str = "",
    *,
    replace: bool = False,
    timeout: float | None = None,
) -> model_pb2.Model:
    """Loads a folder of the server's --model-root, by default `name`; returns when it is served."""
    request = model_pb2.LoadModelRequest(name=name, directory=directory, replace=replace)
    return await session.one("ModelService/LoadModel", request)  # type: ignore[no-any-return]


async def unload_model(session: Session, name: str, *, timeout: float | None = None) -> None:
    """Unloads a model; returns when its requests are answered and its memory is free."""
    await session.one("ModelService/UnloadModel", model_pb2.UnloadModelRequest(name=name))


async def models(
    session: Session, *, all: bool = False, timeout: float | None = None
) -> list[model_pb2.Model]:
    """Every model's name, dimensions, prompts, outputs: see model.proto.

    `all`: those too that are not loaded but may be.
    """
    request = model_pb2.ListModelsRequest(all=all)
    return [*(await session.one("ModelService/ListModels", request)).models]


async def model(session: Session, name: str = "") -> model_pb2.Model:
    """One model; default: the client's, or else the only one."""
    return await session.model(name)


async def server_info(session: Session, *, timeout: float | None = None) -> server_pb2.ServerInfo:
    """Devices, kernels, limits, version: see server.proto."""
    request = server_pb2.GetServerInfoRequest()
    return await session.one("ServerService/GetServerInfo", request)  # type: ignore[no-any-return]
