from castor.v1 import kernel_pb2 as _kernel_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_DEFAULT: _ClassVar[Priority]
    LOW: _ClassVar[Priority]
    NORMAL: _ClassVar[Priority]
    HIGH: _ClassVar[Priority]
PRIORITY_DEFAULT: Priority
LOW: Priority
NORMAL: Priority
HIGH: Priority

class KernelReport(_message.Message):
    __slots__ = ("name", "device", "backend", "vanilla", "clustered", "improved_clustered", "cast", "predicted_us", "measured_us", "rejected")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    VANILLA_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_US_FIELD_NUMBER: _ClassVar[int]
    MEASURED_US_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    name: _kernel_pb2.KernelName
    device: str
    backend: str
    vanilla: _kernel_pb2.Vanilla
    clustered: _kernel_pb2.Clustered
    improved_clustered: _kernel_pb2.ImprovedClustered
    cast: _kernel_pb2.Cast
    predicted_us: float
    measured_us: float
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedKernel]
    def __init__(self, name: _Optional[_Union[_kernel_pb2.KernelName, str]] = ..., device: _Optional[str] = ..., backend: _Optional[str] = ..., vanilla: _Optional[_Union[_kernel_pb2.Vanilla, _Mapping]] = ..., clustered: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ..., cast: _Optional[_Union[_kernel_pb2.Cast, _Mapping]] = ..., predicted_us: _Optional[float] = ..., measured_us: _Optional[float] = ..., rejected: _Optional[_Iterable[_Union[RejectedKernel, _Mapping]]] = ...) -> None: ...

class RejectedKernel(_message.Message):
    __slots__ = ("name", "measured_us", "relative_error", "clustered", "improved_clustered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEASURED_US_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    name: _kernel_pb2.KernelName
    measured_us: float
    relative_error: float
    clustered: _kernel_pb2.Clustered
    improved_clustered: _kernel_pb2.ImprovedClustered
    def __init__(self, name: _Optional[_Union[_kernel_pb2.KernelName, str]] = ..., measured_us: _Optional[float] = ..., relative_error: _Optional[float] = ..., clustered: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("decode_us", "queue_us", "copy_in_us", "compute_us", "copy_out_us", "total_us")
    DECODE_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    COPY_IN_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    COPY_OUT_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    decode_us: float
    queue_us: float
    copy_in_us: float
    compute_us: float
    copy_out_us: float
    total_us: float
    def __init__(self, decode_us: _Optional[float] = ..., queue_us: _Optional[float] = ..., copy_in_us: _Optional[float] = ..., compute_us: _Optional[float] = ..., copy_out_us: _Optional[float] = ..., total_us: _Optional[float] = ...) -> None: ...

class BatchReport(_message.Message):
    __slots__ = ("requests", "tokens", "padded_tokens", "cached")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PADDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    requests: int
    tokens: int
    padded_tokens: int
    cached: bool
    def __init__(self, requests: _Optional[int] = ..., tokens: _Optional[int] = ..., padded_tokens: _Optional[int] = ..., cached: bool = ...) -> None: ...

class MemoryReport(_message.Message):
    __slots__ = ("workspace_bytes", "peak_bytes")
    WORKSPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    workspace_bytes: int
    peak_bytes: int
    def __init__(self, workspace_bytes: _Optional[int] = ..., peak_bytes: _Optional[int] = ...) -> None: ...

class Fidelity(_message.Message):
    __slots__ = ("rows", "relative_error", "probe_us")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    PROBE_US_FIELD_NUMBER: _ClassVar[int]
    rows: int
    relative_error: float
    probe_us: float
    def __init__(self, rows: _Optional[int] = ..., relative_error: _Optional[float] = ..., probe_us: _Optional[float] = ...) -> None: ...
