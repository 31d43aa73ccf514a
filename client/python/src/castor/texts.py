"""Texts and their keywords as requests of EncoderService."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Union

import numpy as np

from castor import fields, kernels, tensors
from castor.kernels import Kernel
from castor.v1 import encoder_pb2

T = TypeVar("T")
Text = Union[str, "tuple[str, str]"]  # or a pair of texts

# Limits of one request: some 8,000 tokens, four seconds of a base-size model on two cores.
MOST_TEXTS = 256
MOST_CHARACTERS = 32 * 1024


class TokenizeOptions(TypedDict, total=False):
    """Keywords of every method that takes texts; encoder.proto describes them."""

    model: str | None  # default: the only one
    prompt_name: str | None  # None: the model's default; "": none
    prompt: str | None  # a literal prompt in place of a named one
    max_tokens: int
    truncate: bool | None  # False: encoding refuses texts that are too long
    truncation_side: str  # "left", "right"
    allow_special_tokens: bool
    priority: str  # "low", "normal", "high"
    request_id: str
    timeout: float | None  # seconds, of each request
    show_progress_bar: bool | None
    batch_size: int  # not used: the server makes the batches


class Options(TokenizeOptions, total=False):
    kernel: Kernel | str | None  # None: the model's own


class EncodeOptions(Options, total=False):
    task: str | None  # the model's adapter of this name, and its prompt; None: none
    normalize_embeddings: bool | None  # None: as the model was saved
    truncate_dim: int | None
    pooling: str  # "mean", "cls", "last_token", "maximum", ...
    # float32, float16; bfloat16, which numpy holds as float32; int8, uint8, binary, ubinary.
    precision: str
    ranges: Any  # for int8, uint8: [2, dim], minimum and maximum; None: the texts' own


_FIELDS = {
    "normalize_embeddings": "normalize",
    "truncate_dim": "dimensions",
    "precision": "output_type",
    "lengths": "query_lengths",
}
_NOT_SENT = {"timeout", "show_progress_bar", "batch_size"}  # the client reads them
_KNOWN = {"instruction", "output", "add_special_tokens", "return_tokens"}
_KNOWN |= {*EncodeOptions.__annotations__}


def as_list(texts: Any, name: str = "texts") -> list[Any]:
    """The texts of any iterable, or the one text."""
    if isinstance(texts, str):
        return [texts]
    check_several(texts, name)
    return list(tensors.unmasked(name, texts))


def check_several(texts: Any, name: str) -> None:
    """Refuses what iterates over keys or column names instead of texts."""
    table = len(getattr(texts, "shape", ())) > 1 and not isinstance(texts, np.ndarray)
    plain = isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray, Mapping))
    if table or not plain:
        more = ": choose a column" if table else ""
        raise TypeError(f"{name} is {type(texts).__name__}, not str or several{more}")


def checked(text: Any, index: int) -> Text:
    """A text, or a pair of texts as a tuple."""
    if isinstance(text, str):
        return text
    parts = text.tolist() if isinstance(text, np.ndarray) else text
    if not isinstance(parts, (tuple, list)) or not all(isinstance(each, str) for each in parts):
        raise TypeError(f"texts[{index}] is {type(text).__name__}, not str")
    if len(parts) != 2:
        raise TypeError(f"texts[{index}] has {len(parts)} parts, not two")
    return parts[0], parts[1]


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def pack(
    texts: AsyncIterable[Text], kind: type[Any], options: Mapping[str, Any]
) -> AsyncIterator[tuple[Any, int]]:
    """Requests of as many texts as fit, each with the number of its first text."""
    batch, start, characters = list[Text](), 0, 0
    async for text in texts:
        batch.append(checked(text, start + len(batch)))
        characters += len(text) if isinstance(text, str) else sum(map(len, text))
        if len(batch) >= MOST_TEXTS or characters >= MOST_CHARACTERS:
            yield request(kind, batch, start, options), start
            batch, start, characters = [], start + len(batch), 0
    if batch:
        yield request(kind, batch, start, options), start


def request(kind: type[Any], batch: Sequence[Text], start: int, options: Mapping[str, Any]) -> Any:
    """A request of texts, the first of which is the call's number `start`."""
    made, pairs = kind(), [text for text in batch if not isinstance(text, str)]
    if pairs and len(pairs) != len(batch):
        raise TypeError("texts and pairs of texts in one call")
    try:
        if kind is encoder_pb2.RerankRequest:  # all pairs with one query
            made.query = pairs[0][0]
            made.documents.extend([second for _, second in pairs])
        else:
            made.texts.texts.extend([text if isinstance(text, str) else text[0] for text in batch])
            made.texts.pairs.extend([second for _, second in pairs])
    except UnicodeEncodeError:
        for index, text in enumerate(batch, start):
            try:
                "".join(text).encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"texts[{index}] is not Unicode: {error}") from None
    put(made, options)
    return made


def put(
    request: Any, options: Mapping[str, Any], known: Any = _KNOWN, tensor: Any = tensors.to_message
) -> None:
    """Sets what the options say; None is a default."""
    own = request.DESCRIPTOR.fields_by_name
    for name, value in options.items():
        field = _FIELDS.get(name, name)
        if name == "kernel" and "vanilla" in own:
            kernels.put(request, value, tensor)
        elif name == "allow_special_tokens" and name not in own:
            fields.put(request.texts, name, value, name)
        elif name in known and field in own:
            if name == "ranges" and value is not None:
                value = np.asarray(tensors.unmasked(name, value), np.float32)
            fields.put(request, field, value, name, tensor)
        elif name not in _NOT_SENT:
            raise TypeError(f"unexpected keyword argument {name!r}")


def stream_requests(
    texts: Iterable[str] | AsyncIterable[str], options: EncodeOptions
) -> AsyncIterator[tuple[encoder_pb2.EncodeRequest, int]]:
    """Requests of a stream, each with the number of its first text."""
    if isinstance(texts, str):
        raise TypeError("texts is str, not several")
    if not isinstance(texts, AsyncIterable):
        check_several(texts, "texts")
        texts = each(texts)
    precision = options.get("precision", "")
    if precision in ("int8", "uint8") and options.get("ranges") is None:
        raise ValueError(f"precision {precision!r} of a stream needs ranges")
    return pack(texts, encoder_pb2.EncodeRequest, {"output": "pooled", **options})
