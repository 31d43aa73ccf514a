"""Texts and the keywords that go with them, as requests of EncoderService. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, Union

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from castor import kernels, tensors
from castor.kernels import Kernel
from castor.v1 import encoder_pb2

Text = Union[str, "tuple[str, str]"]  # or a pair of texts

# Of one request: some 8,000 tokens, four seconds of a base-size model on two cores.
MOST_TEXTS = 256
MOST_CHARACTERS = 32 * 1024


class TokenizeOptions(TypedDict, total=False):
    """Of everything that takes texts; encoder.proto describes them."""

    model: str | None  # default: the only one
    prompt_name: str | None  # None: the model's default; "": none
    prompt: str | None  # a free text in place of a prompt of a name
    max_tokens: int
    truncate: bool | None  # encoding: False refuses texts that are too long
    truncation_side: str  # "left", "right"
    allow_special_tokens: bool
    priority: str  # "low", "normal", "high"
    request_id: str
    timeout: float | None  # seconds, of each request
    show_progress_bar: bool | None
    batch_size: int  # not used: the server makes the batches


class Options(TokenizeOptions, total=False):
    kernel: Kernel | str | None  # None: the model's own


class RowOptions(Options, total=False):
    normalize_embeddings: bool | None  # None: as the model was saved
    truncate_dim: int | None


class PooledOptions(RowOptions, total=False):
    pooling: str  # "mean", "cls", "last_token", "maximum", ...


class EncodeOptions(PooledOptions, total=False):
    # float32, float16; bfloat16, which numpy holds as float32; int8, uint8, binary, ubinary.
    precision: str
    ranges: Any  # of int8 and uint8: [2, dim], the least and greatest; None: those of the texts


_FIELDS = {
    "normalize_embeddings": "normalize",
    "truncate_dim": "dimensions",
    "precision": "output_type",
}
_NOT_SENT = {"timeout", "show_progress_bar", "batch_size"}  # for those who send the request
_KNOWN = {"output", "add_special_tokens", "return_tokens", *EncodeOptions.__annotations__}


def as_list(texts: Any, name: str = "texts") -> list[Any]:
    """Several texts, of any iterable; of one text itself."""
    if isinstance(texts, str):
        return [texts]
    check_several(texts, name)
    return list(tensors.unmasked(name, texts))


def check_several(texts: Any, name: str) -> None:
    """Refuses what gives names or keys when it is gone through: a table's are its columns'."""
    table = len(getattr(texts, "shape", ())) > 1 and not isinstance(texts, np.ndarray)
    plain = isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray, Mapping))
    if table or not plain:
        more = ": choose a column" if table else ""
        raise TypeError(f"{name} is {type(texts).__name__}, not str or several{more}")


class Packer:
    """Gathers texts until they are enough for one request."""

    def __init__(self) -> None:
        self._characters, self.texts = 0, list[Text]()

    def add(self, text: Text, index: int) -> bool:
        """Whether the texts are now to be taken."""
        parts = (text,) if isinstance(text, str) else text
        if isinstance(parts, np.ndarray):  # of an array of pairs
            parts = text = tuple(parts.tolist())
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


def pack(texts: Iterable[Text]) -> Iterator[tuple[list[Text], int]]:
    """Texts of one request, and the number of the first."""
    packer, start = Packer(), 0
    for index, text in enumerate(texts):
        if packer.add(text, index):
            yield packer.take(), start
            start = index + 1
    if packer.texts:
        yield packer.take(), start


def encode_request(
    texts: Sequence[Text], start: int, output: str, options: Mapping[str, Any]
) -> encoder_pb2.EncodeRequest:
    request = encoder_pb2.EncodeRequest()
    put_texts(request.texts, texts, start)
    put(request, {"output": output, **options})
    return request


def put_texts(batch: encoder_pb2.TextBatch, texts: Sequence[Text], start: int) -> None:
    batch.SetInParent()
    pairs = [text for text in texts if not isinstance(text, str)]
    if pairs and len(pairs) != len(texts):
        raise TypeError("texts and pairs of texts in one call")
    try:
        batch.texts.extend([text if isinstance(text, str) else text[0] for text in texts])
        batch.pairs.extend([second for _, second in pairs])
    except UnicodeEncodeError:
        for index, text in enumerate(texts, start):
            try:
                "".join(text).encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"texts[{index}] is not Unicode: {error}") from None


def put(request: Any, options: Mapping[str, Any]) -> None:
    """Sets what the options say; None is a default."""
    fields = request.DESCRIPTOR.fields_by_name
    for name, value in options.items():
        field = fields.get(_FIELDS.get(name, name))
        if name == "allow_special_tokens" and field is None:
            request.texts.allow_special_tokens = value
        elif name == "kernel" and "vanilla" in fields:
            kernels.put(request, value, tensors.to_message)
        elif name not in _NOT_SENT and (field is None or name not in _KNOWN):
            raise TypeError(f"unexpected keyword argument {name!r}")
        elif value is None or field is None:
            pass
        elif name == "ranges":
            request.ranges.CopyFrom(
                tensors.to_message(name, np.asarray(tensors.unmasked(name, value), np.float32))
            )
        elif field.type == FieldDescriptor.TYPE_ENUM:
            if value:
                setattr(request, field.name, kernels.number(field.enum_type, value, name))
        else:
            try:
                setattr(request, field.name, value)
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{name} is {value!r}: {error}") from None


def stream_requests(
    texts: Iterable[str], options: EncodeOptions
) -> Iterator[tuple[encoder_pb2.EncodeRequest, int]]:
    """Requests, each with the number of its first text."""
    check_stream(texts, options)
    for batch, start in pack(texts):
        yield encode_request(batch, start, "pooled", options), start


def check_stream(texts: Any, options: EncodeOptions) -> None:
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts is {type(texts).__name__}, not several")
    if not isinstance(texts, AsyncIterable):
        check_several(texts, "texts")
    precision = options.get("precision", "")
    if precision in ("int8", "uint8") and options.get("ranges") is None:
        raise ValueError(f"precision {precision!r} of a stream needs ranges")
