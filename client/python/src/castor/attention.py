"""AttentionService.Attend as a coroutine, with tensors in the message or in shared memory."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from castor import fields, reports, tensors, texts
from castor.kernels import Kernel
from castor.session import Session
from castor.v1 import attention_pb2, tensor_pb2
from castor.v1.shared_memory_pb2 import RegisterSharedMemoryRequest, UnregisterSharedMemoryRequest

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ALIGNMENT = 64  # bytes: a cache line


@dataclass(frozen=True)
class Positions:
    """Positions of queries and keys, and how they change scores: see attention.proto."""

    query: Sequence[int] = ()
    key: Sequence[int] = ()
    left: int | None = None  # the window: how far a query sees to the left, and right
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
        self.name, self.size = self.key[1:], size  # the region's
        self._path = "/dev/shm" + self.key
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # without space, a write would kill the process
            self._bytes = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        except BaseException:
            os.unlink(self._path)
            raise
        finally:
            os.close(descriptor)
        self._used = 0

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
        """A new array of zeros, placed behind the earlier ones."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is {shape}")
        end = self._used + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if end > self.size:
            free = self.size - self._used
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
        """The place of a contiguous array; None if it is elsewhere."""
        offset = array.ctypes.data - self._bytes.ctypes.data
        if not 0 <= offset <= self.size - array.nbytes:
            return None
        return tensor_pb2.SharedMemoryRef(region=self.name, offset=offset, size=array.nbytes)

    def close(self) -> None:
        """Removes the name."""
        os.unlink(self._path)


async def register(session: Session, memory: Memory) -> None:
    request = RegisterSharedMemoryRequest(name=memory.name, key=memory.key, size=memory.size)
    await session.one("SharedMemoryService/RegisterSharedMemory", request, repeatable=False)


async def unregister(session: Session, memory: Memory) -> None:
    request = UnregisterSharedMemoryRequest(name=memory.name)
    await session.one("SharedMemoryService/UnregisterSharedMemory", request, repeatable=False)


class AttendOptions(TypedDict, total=False):
    """Keywords of attend(); attention.proto describes them."""

    lengths: Sequence[int]  # of the packed sequences
    key_lengths: Sequence[int]
    kernel: Kernel | str | None
    softmax_scale: float | None
    return_log_sum_exp: bool
    key_bias: Any
    softcap: float
    value_dim: int
    fidelity_rows: int
    check_finite: bool
    priority: str
    request_id: str
    timeout: float | None


async def attend(
    session: Session,
    query: Any,
    key: Any,
    value: Any = None,
    *,
    positions: Positions | None = None,
    memory: Memory | None = None,
    output: NDArray[Any] | None = None,
    **options: Unpack[AttendOptions],
) -> reports.Attention:
    """Attention of [tokens, heads, head_dim], packed sequences of `lengths`; or [batch, ...].

    Takes numpy arrays and CPU tensors with DLPack, of float32, float16 or bfloat16; the output of
    bfloat16 comes as float32. Arrays of `memory` (Client.shared_memory) do not pass through the
    connection; `output` is one of them. After a call that failed without a reason, the server may
    still write to `output`. Without `value`, values are the first `value_dim` elements of keys.
    """
    tensor, apart = partial(tensors.to_message, memory=memory), dict[str, NDArray[Any]]()
    request = attention_pb2.AttendRequest(
        query=tensor("query", query, apart=apart),
        key=tensor("key", key, apart=apart),
        value=None if value is None else tensor("value", value, apart=apart),
        value_is_key_prefix=value is None,
    )
    texts.put(request, options, AttendOptions.__annotations__, tensor)
    if positions is not None:
        request.positions.SetInParent()
        for name, each in vars(positions).items():
            message = request.positions.window if name in ("left", "right") else request.positions
            fields.put(message, name, each, f"positions.{name}", tensor)
    if output is not None:
        fits = memory and isinstance(output, np.ndarray) and output.flags.c_contiguous
        place = memory.locate(output) if memory and fits else None
        if place is None:
            raise ValueError("output is not a contiguous array of `memory`")
        request.output.CopyFrom(place)
    if apart:
        session.wire = tensors.to_wire(request, apart)
    # With `output` no second attempt: the server may still write the first one's result.
    answer = await session.one("AttentionService/Attend", request, repeatable=output is None)
    rows = tensors.from_message(answer.output) if output is None else output
    logs = tensors.from_message(answer.log_sum_exp) if request.return_log_sum_exp else None
    return reports.Attention(rows, logs, reports.read(answer))
