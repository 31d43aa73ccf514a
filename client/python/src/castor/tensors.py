"""Arrays as tensors of messages and back; quantizing and merging on the client."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor.v1 import tensor_pb2

DTYPES: dict[int, str] = {
    tensor_pb2.FLOAT32: "<f4",
    tensor_pb2.FLOAT16: "<f2",
    tensor_pb2.BFLOAT16: "<u2",  # numpy has no bfloat16: its bits
    tensor_pb2.INT32: "<i4",
    tensor_pb2.INT64: "<i8",
    tensor_pb2.INT8: "i1",
    tensor_pb2.UINT8: "u1",
}
_RAW = tensor_pb2.Tensor.DESCRIPTOR.fields_by_name["raw"]
_MOST_BYTES = 2**31 - 1  # of a message
_APART_BYTES = 1 << 15  # smaller arrays gain nothing
_FLOATS = {"float32": tensor_pb2.FLOAT32, "float16": tensor_pb2.FLOAT16}


def unmasked(name: str, values: Any) -> Any:
    """The values. Refuses masked arrays, whose mask numpy would drop."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill it, or leave out what is masked")
    return values


def as_array(name: str, values: Any) -> tuple[NDArray[Any], tensor_pb2.DataType]:
    """The elements, contiguous and little-endian, and their DataType. Copies only if it must.

    Takes numpy arrays (ml_dtypes' bfloat16 too) and CPU tensors of any library with DLPack.
    """
    if not isinstance(unmasked(name, values), np.ndarray):
        if hasattr(values, "resolve_neg"):  # torch: DLPack refuses gradients, drops negation
            values = values.detach().resolve_neg()
        if str(getattr(values, "dtype", "")) == "torch.bfloat16":  # numpy's DLPack has none
            bits = values.contiguous().view(sys.modules["torch"].int16)
            return _from_dlpack(name, bits).view("<u2"), tensor_pb2.BFLOAT16
        known = hasattr(values, "__dlpack__")
        values = _from_dlpack(name, values) if known else np.asarray(values)
    array = np.ascontiguousarray(values)
    kind = array.dtype.name  # slow to ask for
    if kind == "bfloat16":
        return array.view("<u2"), tensor_pb2.BFLOAT16
    if kind not in _FLOATS:
        raise TypeError(f"{name} is {array.dtype}: use float32, float16 or bfloat16")
    dtype = _FLOATS[kind]
    return array.astype(DTYPES[dtype], copy=False), dtype


def _from_dlpack(name: str, tensor: Any) -> NDArray[Any]:
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is not a plain CPU tensor: {error}") from None


def to_torch(rows: NDArray[Any]) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(rows))


def to_message(
    name: str, values: Any, memory: Any = None, apart: dict[str, NDArray[Any]] | None = None
) -> tensor_pb2.Tensor:
    """A message with the elements, or with their place in `memory`. A large array goes into
    `apart`, by name, instead of the message: to_wire puts its elements back."""
    array, dtype = as_array(name, values)
    message = tensor_pb2.Tensor(dtype=dtype, shape=array.shape)
    if place := memory.locate(array) if memory else None:
        message.shared_memory.CopyFrom(place)
    elif apart is None or array.nbytes < _APART_BYTES:
        message.raw = array.tobytes()
    else:
        apart[name] = array
    return message


def to_wire(request: Any, apart: dict[str, NDArray[Any]]) -> bytes:
    """Serializes the request, and with it the arrays kept apart from its Tensor fields.

    Each array is copied once, where protobuf's messages would copy it five times.
    """
    rest, parts = type(request)(), list[Any]()
    rest.CopyFrom(request)
    for name, array in apart.items():
        rest.ClearField(name)
        head = getattr(request, name).SerializeToString() + _prefix(_RAW, array.nbytes)
        field = request.DESCRIPTOR.fields_by_name[name]
        parts += [_prefix(field, len(head) + array.nbytes), head, array.data]
    parts.insert(0, rest.SerializeToString())
    if (size := sum(memoryview(part).nbytes for part in parts)) > _MOST_BYTES:
        raise ValueError(
            f"{', '.join(apart)} take {size:,} bytes, and a message at most {_MOST_BYTES:,}: "
            "use shared_memory, or several calls"
        )
    return b"".join(parts)


def _prefix(field: Any, size: int) -> bytes:
    """What precedes a field's `size` bytes: its tag and their number, as varints."""
    found = bytearray()
    for value in (field.number << 3 | 2, size):
        while value > 127:
            found.append(value & 127 | 128)
            value >>= 7
        found.append(value)
    return bytes(found)


def from_message(tensor: tensor_pb2.Tensor) -> NDArray[Any]:
    """A read-only view of the message's bytes; BFLOAT16 comes as float32."""
    array: NDArray[Any] = np.frombuffer(tensor.raw, DTYPES[tensor.dtype]).reshape(
        tuple(tensor.shape)
    )
    if tensor.dtype == tensor_pb2.BFLOAT16:  # float32 holds each of its values
        array = np.left_shift(array, 16, dtype="<u4").view("<f4")
    return array


def quantize(rows: NDArray[Any], precision: str, ranges: Any = None) -> NDArray[Any]:
    """sentence-transformers' quantize_embeddings. ranges: [2, dim], default: those of `rows`."""
    if precision in ("binary", "ubinary"):
        bits: NDArray[Any] = np.packbits(rows > 0, axis=-1)
        signed: NDArray[Any] = (bits ^ 128).view(np.int8)
        return bits if precision == "ubinary" else signed
    if precision not in ("int8", "uint8"):
        raise ValueError(f"precision {precision!r} is not float32, int8, uint8, binary or ubinary")
    if ranges is None and len(rows) < 2:
        raise ValueError(f"precision {precision!r} needs ranges, or two texts at least")
    lower, upper = (rows.min(0), rows.max(0)) if ranges is None else np.asarray(ranges, "<f4")
    steps = (upper - lower) / np.float32(255)
    steps = np.where(steps == 0, 1, steps)
    levels: NDArray[Any] = np.floor((rows - lower) / steps).clip(0, 255)
    return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)


def merge(
    outputs: Sequence[Any], log_sum_exps: Sequence[Any]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Merges answers over disjoint sets of keys into one: (output, log_sum_exp).

    A part in which a row sees no key (-Inf, or +Inf as flash-attn 2 has it) adds nothing to it,
    whatever its output holds. Where all are such, the row is zeros and -Inf. NaN gives NaN. Sums
    are float64, rounded once.
    """
    if not outputs or len(outputs) != len(log_sum_exps):
        raise ValueError(f"{len(outputs)} outputs and {len(log_sum_exps)} log_sum_exps")
    first, logs = np.asarray(outputs[0]), [np.asarray(log, np.float64) for log in log_sum_exps]
    for part, (output, log) in enumerate(zip(outputs, logs)):
        if np.shape(output) != first.shape or log.shape != first.shape[:-1]:
            raise ValueError(
                f"part {part}: output {np.shape(output)} with log_sum_exp {log.shape} does not go "
                f"with part 0's output {first.shape}"
            )
    logs = [np.where(np.isposinf(log), -np.inf, log) for log in logs]
    rows = np.zeros(first.shape)
    with np.errstate(invalid="ignore"):
        merged: NDArray[Any] = np.logaddexp.reduce(logs)
        for output, log in zip(outputs, logs):
            weight = np.exp(log - merged)[..., None]
            rows += np.where(
                np.isneginf(log)[..., None], 0, weight * np.asarray(output, np.float64)
            )
    return rows.astype(first.dtype), merged.astype(np.float32)
