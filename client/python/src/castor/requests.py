"""Calls as values: what to send and how to read the answers. Pure; client.py and aio.py run them.

A call has one request, or several that travel over one stream. What reads its answers may return
another call, to be run in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from castor import errors, kernels, reports, tensors
from castor.kernels import Kernel
from castor.rpc import status_pb2
from castor.v1 import encoder_pb2, model_pb2, server_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Text = Union[str, "tuple[str, str]"]  # or a pair of texts

# Of one request: some 8,000 tokens, four seconds of a base-size model on two cores.
MOST_TEXTS = 256
MOST_CHARACTERS = 32 * 1024
IN_FLIGHT = 8  # requests of a call that has several
GRACE = 5.0  # seconds beyond a message's deadline, after which a stream's server is taken for hung


@dataclass
class Call(Generic[T]):
    method: str  # "EncoderService/Encode"
    requests: Sequence[Any]
    read: Callable[[list[Any]], T | Call[T]]
    timeout: float | None = None  # seconds; None: the client's
    repeat: bool = True  # whether the server may be given it twice
    cache: bool = False  # whether one answer holds for the client's life
    progress: Callable[[int], None] | None = None  # told how many requests are answered
    starts: Sequence[int] = (0,)  # the first input of each request, for errors


class Options(TypedDict, total=False):
    """Of everything that encodes texts; EncodeRequest in encoder.proto describes them."""

    model: str  # default: the only one
    prompt_name: str | None  # None: the model's default; "": none
    prompt: str | None  # a free text in place of a prompt of a name
    kernel: Kernel | str | None  # None: the model's own
    max_tokens: int
    truncate: bool  # False refuses texts that are too long
    truncation_side: str  # "left", "right"
    allow_special_tokens: bool
    priority: str  # "low", "normal", "high"
    request_id: str
    timeout: float | None  # seconds, of each request
    show_progress_bar: bool | None


class RowOptions(Options, total=False):
    normalize_embeddings: bool | None  # None: as the model was saved
    truncate_dim: int | None


class PooledOptions(RowOptions, total=False):
    pooling: str  # "mean", "cls", "last_token", "maximum", ...


class EncodeOptions(PooledOptions, total=False):
    # float32, float16; bfloat16, which numpy holds as float32; int8, uint8, binary, ubinary.
    precision: str
    ranges: Any  # of int8 and uint8: [2, dim], the least and greatest; None: those of the texts


class Packer:
    """Gathers texts until they are enough for one request."""

    def __init__(self) -> None:
        self._characters, self.texts = 0, list[Text]()

    def add(self, text: Text, index: int) -> bool:
        """Whether the texts are now to be taken."""
        parts = (text,) if isinstance(text, str) else text
        if not isinstance(parts, (tuple, list)) or not all(isinstance(each, str) for each in parts):
            raise TypeError(f"texts[{index}] is {type(text).__name__}, not str")
        if not isinstance(text, str) and len(parts) != 2:
            raise TypeError(f"texts[{index}] has {len(parts)} parts, not two")
        self.texts.append(text)
        self._characters += sum(map(len, parts))
        return len(self.texts) >= MOST_TEXTS or self._characters >= MOST_CHARACTERS

    def take(self) -> list[Text]:
        texts, self.texts, self._characters = self.texts, [], 0
        return texts


def pack(texts: Iterable[Text]) -> Iterator[list[Text]]:
    packer = Packer()
    for index, text in enumerate(texts):
        if packer.add(text, index):
            yield packer.take()
    if packer.texts:
        yield packer.take()


def texts_request(
    texts: Sequence[Text],
    output: str = "",
    *,
    model: str = "",
    prompt_name: str | None = None,
    prompt: str | None = None,
    kernel: Kernel | str | None = None,
    max_tokens: int = 0,
    truncate: bool | None = None,
    truncation_side: str = "",
    allow_special_tokens: bool = False,
    priority: str = "",
    request_id: str = "",
    timeout: float | None = None,
    show_progress_bar: bool | None = None,
    normalize_embeddings: bool | None = None,
    truncate_dim: int | None = None,
    pooling: str = "",
    precision: str = "float32",
    ranges: Any = None,
) -> encoder_pb2.EncodeRequest:
    """An EncodeRequest. `timeout` and `show_progress_bar` are for those who send it."""
    optional: dict[str, Any] = {
        "normalize": normalize_embeddings,
        "truncate": truncate,
        "prompt_name": prompt_name,
        "prompt": prompt,
    }
    request = encoder_pb2.EncodeRequest(
        request_id=request_id,
        model=model,
        dimensions=truncate_dim or 0,
        max_tokens=max_tokens,
        **optional,
    )
    batch = request.texts
    batch.SetInParent()
    pairs = [text for text in texts if not isinstance(text, str)]
    if not pairs:
        batch.texts.extend(text for text in texts if isinstance(text, str))
    elif len(pairs) == len(texts):
        batch.texts.extend(first for first, _ in pairs)
        batch.pairs.extend(second for _, second in pairs)
    else:
        raise TypeError("texts and pairs of texts in one call")
    batch.allow_special_tokens = allow_special_tokens
    names = {"output": output, "pooling": pooling, "truncation_side": truncation_side}
    names |= {"priority": priority, "output_type": "" if precision == "float32" else precision}
    for field, name in names.items():
        if name:
            enum = request.DESCRIPTOR.fields_by_name[field].enum_type
            setattr(request, field, kernels.number(enum, name, field))
    if ranges is not None:
        request.ranges.CopyFrom(tensors.to_message("ranges", np.asarray(ranges, np.float32)))
    kernels.put(request, kernel, tensors.to_message)
    return request


def texts_call(
    texts: Sequence[Text], read: Callable[[list[Any]], T | Call[T]], output: str, **options: Any
) -> Call[T]:
    if not texts:
        raise ValueError("there are no texts")
    requests, starts, start = [], [], 0
    for batch in pack(texts):
        requests.append(texts_request(batch, output, **options))
        starts.append(start)
        start += len(batch)
    progress = None
    if options.get("show_progress_bar") and len(requests) > 1:
        progress = _bar([*starts[1:], start])
    method = "EncoderService/Encode"
    return Call(method, requests, read, options.get("timeout"), progress=progress, starts=starts)


def _bar(ends: list[int]) -> Callable[[int], None]:
    import sys

    def show(answered: int) -> None:
        end = "\n" if answered == len(ends) else ""
        print(f"\rencoded {ends[answered - 1]:,} of {ends[-1]:,}", end=end, file=sys.stderr)

    return show


def _is_one(texts: Any) -> bool:
    return isinstance(texts, str)


def encode(texts: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Call[NDArray[Any]]:
    """One row for each text, in order; of one text its row. See EncodeOptions.

    int8 and uint8 without `ranges` use those of all the texts, as sentence-transformers does.
    """
    if len(texts) == 0 and not _is_one(texts):
        return _no_rows(options)

    def read(encoded: reports.Encoded) -> NDArray[Any]:
        return encoded.rows[0] if _is_one(texts) else encoded.rows

    return then(encode_with_report(texts, **options), read)


def encode_with_report(
    texts: str | Sequence[str], **options: Unpack[EncodeOptions]
) -> Call[reports.Encoded]:
    """The same, always [texts, dim], with token counts, truncation and reports."""
    quantized = None
    if options.get("precision") in ("int8", "uint8") and options.get("ranges") is None:
        quantized = options["precision"]
        options = {**options, "precision": "float32"}

    def read(answers: list[Any]) -> reports.Encoded:
        rows = _rows(answers)
        if quantized:
            rows = tensors.quantize(rows, quantized)
        return reports.Encoded(
            rows,
            np.concatenate([np.array(each.token_counts, np.int64) for each in answers]),
            np.concatenate([np.array(each.truncated, np.bool_) for each in answers]),
            tuple(reports.read(each) for each in answers),
        )

    return texts_call([texts] if isinstance(texts, str) else texts, read, "pooled", **options)


def _rows(answers: list[Any]) -> NDArray[Any]:
    """A copy, for the caller to write to."""
    return np.concatenate([tensors.from_message(answer.output) for answer in answers])


def then(call: Call[Any], read: Callable[[Any], Any]) -> Call[Any]:
    before = call.read
    call.read = lambda answers: read(before(answers))
    return call


def _with_model(name: str, use: Callable[[model_pb2.Model], Any]) -> Call[Any]:
    """A call made of what `use` says of the model: a value, or a call."""

    def read(answers: list[Any]) -> Any:
        return use(find_model(answers[0].models, name))

    return Call("ModelService/ListModels", [model_pb2.ListModelsRequest()], read, cache=True)


def find_model(models: Sequence[model_pb2.Model], name: str) -> model_pb2.Model:
    for model in models:
        if model.name == name or (not name and len(models) == 1):
            return model
    loaded = ", ".join(model.name for model in models)
    raise LookupError(f"model {name!r} is not one of the server's: {loaded}")


def _no_rows(options: EncodeOptions) -> Call[NDArray[Any]]:
    precision = options.get("precision", "float32")

    def empty(model: model_pb2.Model) -> NDArray[Any]:
        dim = options.get("truncate_dim") or model.dimensions or model.hidden_size
        rows = np.zeros((0, dim), "<f2" if precision == "float16" else "<f4")
        if precision in ("float32", "float16", "bfloat16"):
            return rows
        return tensors.quantize(rows, precision, np.zeros((2, dim)))

    return _with_model(options.get("model", ""), empty)


def _encode_with_prompt(
    names: Sequence[str], texts: str | Sequence[str], options: EncodeOptions
) -> Call[NDArray[Any]]:
    if options.get("prompt_name") is not None or options.get("prompt") is not None:
        return encode(texts, **options)

    def use(model: model_pb2.Model) -> Call[NDArray[Any]]:
        known = {prompt.name for prompt in model.prompts}
        found = next((name for name in names if name in known), "")
        prompted: EncodeOptions = {**options, "prompt_name": found}
        return encode(texts, **prompted)

    return _with_model(options.get("model", ""), use)


def encode_query(
    texts: str | Sequence[str], **options: Unpack[EncodeOptions]
) -> Call[NDArray[Any]]:
    """encode() with the model's prompt "query", if it has one; else none."""
    return _encode_with_prompt(["query"], texts, options)


def encode_document(
    texts: str | Sequence[str], **options: Unpack[EncodeOptions]
) -> Call[NDArray[Any]]:
    """encode() with the first there is of the prompts "document", "passage", "corpus"."""
    return _encode_with_prompt(["document", "passage", "corpus"], texts, options)


def encode_tokens(
    texts: str | Sequence[str], **options: Unpack[RowOptions]
) -> Call[list[NDArray[np.float32]]]:
    """[tokens, dim] of each text, special tokens and the prompt's included: of ColBERT its rows."""

    def read(answers: list[Any]) -> list[NDArray[np.float32]]:
        rows: list[NDArray[np.float32]] = []
        for answer in answers:
            ends = np.cumsum(answer.lengths)[:-1]
            rows += np.split(tensors.from_message(answer.output).copy(), ends)
        return rows

    everything = [texts] if isinstance(texts, str) else texts
    return texts_call(everything, read, "token_embeddings", **options)


def encode_spans(
    document: str, spans: Sequence[tuple[int, int]], **options: Unpack[PooledOptions]
) -> Call[reports.Spans]:
    """A row for each range (begin, end) of the document's characters: late chunking."""

    def read(answers: list[Any]) -> reports.Spans:
        found = answers[0].spans
        tokens = [(span.begin, span.end) for span in found]
        return reports.Spans(_rows(answers), tokens, [span.truncated for span in found])

    call = texts_call([document], read, "pooled", **options)
    for begin, end in spans:
        call.requests[0].spans.ranges.add(begin=begin, end=end)
    return call


def encode_sparse(texts: str | Sequence[str], **options: Unpack[Options]) -> Call[reports.Sparse]:
    """Of a SPLADE model, or BGE-M3: one row for each text."""

    def read(answers: list[Any]) -> reports.Sparse:
        sparse = [answer.sparse for answer in answers]
        lengths = [np.array(each.lengths, np.int64) for each in sparse]
        return reports.Sparse(
            np.concatenate([np.array(each.indices, np.int32) for each in sparse]),
            np.concatenate([np.array(each.values, np.float32) for each in sparse]),
            np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64),
        )

    return texts_call([texts] if isinstance(texts, str) else texts, read, "sparse", **options)


def predict(
    inputs: Text | Sequence[Text], *, logits: bool = False, **options: Unpack[Options]
) -> Call[NDArray[np.float32]]:
    """Scores of a classifier or cross-encoder, for each text or pair of texts.

    [inputs], or [inputs, labels] of models with several labels; of one input its row. `logits`:
    before the activation. Where scores tie at 1, these still differ.
    """
    alone = isinstance(inputs, (str, tuple))

    def read(answers: list[Any]) -> NDArray[np.float32]:
        rows = _rows(answers)
        rows = rows[:, 0] if rows.shape[1] == 1 else rows
        return rows[0] if alone else rows

    everything: Any = [inputs] if alone else inputs
    return texts_call(everything, read, "logits" if logits else "scores", **options)


class Ranked(TypedDict, total=False):
    """As CrossEncoder.rank has it."""

    corpus_id: int
    score: float
    text: str


def rank(
    query: str,
    documents: Sequence[str],
    top_k: int | None = None,
    return_documents: bool = False,
    **options: Unpack[Options],
) -> Call[list[Ranked]]:
    """The documents by a cross-encoder's score for the query, best first."""

    def order(scores: NDArray[np.float32]) -> list[Ranked]:
        if scores.ndim != 1:
            raise ValueError(f"the model has {scores.shape[1]} labels: rank() needs one")
        ranked: list[Ranked] = []
        for index in np.argsort(-scores, kind="stable")[:top_k]:
            entry: Ranked = {"corpus_id": int(index), "score": float(scores[index])}
            if return_documents:
                entry["text"] = documents[index]
            ranked.append(entry)
        return ranked

    return then(predict([(query, document) for document in documents], **options), order)


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


def stream_requests(
    texts: Iterable[str], options: EncodeOptions
) -> Iterator[tuple[encoder_pb2.EncodeRequest, int]]:
    """Requests, each with the number of its first text."""
    check_stream(options)
    start = 0
    for batch in pack(texts):
        yield texts_request(batch, "pooled", **options), start
        start += len(batch)


def check_stream(options: EncodeOptions) -> None:
    precision = options.get("precision", "")
    if precision in ("int8", "uint8") and options.get("ranges") is None:
        raise ValueError(f"precision {precision!r} of a stream needs ranges")


def ended_early() -> errors.CastorError:
    status = status_pb2.Status(code=14, message="the server ended the stream early")
    return errors.from_status(status)
