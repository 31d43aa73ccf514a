"""AttentionService.Attend as a call, with tensors in the message or in shared memory."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castor import kernels, reports, tensors
from castor.kernels import Kernel
from castor.requests import Call
from castor.v1 import attention_pb2, server_pb2, shared_memory_pb2, tensor_pb2

_ALIGNMENT = 64  # bytes: a cache line


@dataclass(frozen=True)
class Positions:
    """Where queries and keys are, and what that does to their scores: see attention.proto."""

    query: Sequence[int] = ()
    key: Sequence[int] = ()
    left: int | None = None  # the window: keys at most so far to the left, and right
    right: int | None = None
    always_visible: int = 0
    alibi_slopes: Sequence[float] = ()
    relative_bias: Any = None  # [heads, 2 reach + 1]


class Memory:
    """A shared-memory object of this process, which removes its name when it is closed.

    Its arrays stay valid as long as they are referenced.
    """

    def __init__(self, size: int, key_prefix: str = "/") -> None:
        if size < 1:
            raise ValueError(f"size is {size}, not at least 1")
        self.key = f"{key_prefix}castor-{secrets.token_hex(8)}"
        self.name = self.key[1:]  # the region's
        self._path = "/dev/shm" + self.key
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # or else a write could end the process
            self._bytes = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        except BaseException:
            os.unlink(self._path)
            raise
        finally:
            os.close(descriptor)
        self._used = 0

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
        """A new array of zeros inside, behind those before it."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is {shape}")
        end = self._used + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if end > self._bytes.size:
            free = self._bytes.size - self._used
            raise MemoryError(f"{free} bytes are left in shared memory, not {end - self._used}")
        array: NDArray[Any] = self._bytes[self._used : end].view(dtype).reshape(shape)
        self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        return array

    def put(self, values: Any) -> NDArray[Any]:
        """A copy of an array or CPU tensor."""
        values = np.asarray(values)
        array = self.array(values.shape, values.dtype)
        array[...] = values
        return array

    def locate(self, array: NDArray[Any]) -> tensor_pb2.SharedMemoryRef | None:
        """Where a contiguous array lies; None if it is elsewhere."""
        offset = array.ctypes.data - self._bytes.ctypes.data
        if not 0 <= offset <= self._bytes.size - array.nbytes:
            return None
        return tensor_pb2.SharedMemoryRef(region=self.name, offset=offset, size=array.nbytes)

    def register(self) -> Call[None]:
        request = shared_memory_pb2.RegisterSharedMemoryRequest(
            name=self.name, key=self.key, size=self._bytes.size
        )
        method = "SharedMemoryService/RegisterSharedMemory"
        return Call(method, [request], lambda answers: None, repeat=False)

    def unregister(self) -> Call[None]:
        request = shared_memory_pb2.UnregisterSharedMemoryRequest(name=self.name)
        method = "SharedMemoryService/UnregisterSharedMemory"
        return Call(method, [request], lambda answers: None, repeat=False)

    def unlink(self) -> None:
        os.unlink(self._path)


def key_prefix() -> Call[str]:
    """What the keys of this caller's shared-memory objects must begin with."""
    request = server_pb2.GetServerInfoRequest()
    read = lambda answers: answers[0].limits.shared_memory_key_prefix or "/"  # noqa: E731
    return Call("ServerService/GetServerInfo", [request], read)


def attend(
    query: Any,
    key: Any,
    value: Any = None,
    *,
    lengths: Sequence[int] = (),
    key_lengths: Sequence[int] = (),
    kernel: Kernel | str | None = None,
    softmax_scale: float | None = None,
    return_log_sum_exp: bool = False,
    key_bias: Any = None,
    positions: Positions | None = None,
    softcap: float = 0.0,
    value_dim: int = 0,
    fidelity_rows: int = 0,
    check_finite: bool = False,
    memory: Memory | None = None,
    output: NDArray[Any] | None = None,
    priority: str = "",
    request_id: str = "",
    timeout: float | None = None,
) -> Call[reports.Attention]:
    """Attention of [tokens, heads, head_dim], packed sequences of `lengths`; or [batch, ...].

    Takes numpy arrays and CPU tensors with DLPack, of float32, float16 or bfloat16; the output of
    bfloat16 comes as float32. Arrays of `memory` (Client.shared_memory) do not pass through the
    connection; `output` is one of them. After a call that failed without a reason, the server may
    still write to `output`. Without `value`, values are the first `value_dim` elements of keys.
    """

    def tensor(name: str, values: Any) -> tensor_pb2.Tensor:
        array, dtype = tensors.as_array(name, values)
        place = memory.locate(array) if memory else None
        if place is None:
            return tensor_pb2.Tensor(dtype=dtype, shape=array.shape, raw=array.tobytes())
        return tensor_pb2.Tensor(dtype=dtype, shape=array.shape, shared_memory=place)

    request = attention_pb2.AttendRequest(
        request_id=request_id,
        query=tensor("query", query),
        key=tensor("key", key),
        value=None if value is None else tensor("value", value),
        query_lengths=lengths,
        key_lengths=key_lengths,
        softmax_scale=softmax_scale,
        return_log_sum_exp=return_log_sum_exp,
        key_bias=None if key_bias is None else tensor("key_bias", key_bias),
        softcap=softcap,
        value_is_key_prefix=value is None,
        value_dim=value_dim,
        fidelity_rows=fidelity_rows,
        check_finite=check_finite,
    )
    if priority:
        enum = request.DESCRIPTOR.fields_by_name["priority"].enum_type
        setattr(request, "priority", kernels.number(enum, priority, "priority"))  # noqa: B010
    kernels.put(request, kernel, tensor)
    if positions is not None:
        _put_positions(request.positions, positions, tensor)
    if output is not None:
        fits = memory and isinstance(output, np.ndarray) and output.flags.c_contiguous
        place = memory.locate(output) if memory and fits else None
        if place is None:
            raise ValueError("output is not a contiguous array of `memory`")
        request.output.CopyFrom(place)

    def read(answers: list[Any]) -> reports.Attention:
        answer = answers[0]
        rows = tensors.from_message(answer.output) if output is None else output
        logs = tensors.from_message(answer.log_sum_exp) if return_log_sum_exp else None
        return reports.Attention(rows, logs, reports.read(answer))

    repeat = output is None  # the server may still write what an attempt that failed asked for
    return Call("AttentionService/Attend", [request], read, timeout, repeat)


def _put_positions(message: attention_pb2.Positions, positions: Positions, tensor: Any) -> None:
    message.SetInParent()
    message.query.extend(positions.query)
    message.key.extend(positions.key)
    for side, bound in (("left", positions.left), ("right", positions.right)):
        if bound is not None:
            setattr(message.window, side, bound)
    message.always_visible = positions.always_visible
    message.alibi_slopes.extend(positions.alibi_slopes)
    if positions.relative_bias is not None:
        bias = tensor("positions.relative_bias", positions.relative_bias)
        message.relative_bias.CopyFrom(bias)
