from castor.v1 import kernel_pb2 as _kernel_pb2
from castor.v1 import report_pb2 as _report_pb2
from castor.v1 import tensor_pb2 as _tensor_pb2
from castor.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttendRequest(_message.Message):
    __slots__ = ("request_id", "query", "key", "value", "query_lengths", "key_lengths", "softmax_scale", "priority", "fidelity_rows", "check_finite", "vanilla", "clustered", "improved_clustered", "cast", "automatic", "output", "return_log_sum_exp", "value_is_key_prefix", "value_dim", "positions", "softcap", "key_bias", "timeout_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    QUERY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    KEY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_ROWS_FIELD_NUMBER: _ClassVar[int]
    CHECK_FINITE_FIELD_NUMBER: _ClassVar[int]
    VANILLA_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RETURN_LOG_SUM_EXP_FIELD_NUMBER: _ClassVar[int]
    VALUE_IS_KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    VALUE_DIM_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTCAP_FIELD_NUMBER: _ClassVar[int]
    KEY_BIAS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    query: _tensor_pb2.Tensor
    key: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    query_lengths: _containers.RepeatedScalarFieldContainer[int]
    key_lengths: _containers.RepeatedScalarFieldContainer[int]
    softmax_scale: float
    priority: _report_pb2.Priority
    fidelity_rows: int
    check_finite: bool
    vanilla: _kernel_pb2.Vanilla
    clustered: _kernel_pb2.Clustered
    improved_clustered: _kernel_pb2.ImprovedClustered
    cast: _kernel_pb2.Cast
    automatic: _kernel_pb2.Automatic
    output: _tensor_pb2.SharedMemoryRef
    return_log_sum_exp: bool
    value_is_key_prefix: bool
    value_dim: int
    positions: Positions
    softcap: float
    key_bias: _tensor_pb2.Tensor
    timeout_ms: int
    def __init__(self, request_id: _Optional[str] = ..., query: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., key: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., query_lengths: _Optional[_Iterable[int]] = ..., key_lengths: _Optional[_Iterable[int]] = ..., softmax_scale: _Optional[float] = ..., priority: _Optional[_Union[_report_pb2.Priority, str]] = ..., fidelity_rows: _Optional[int] = ..., check_finite: bool = ..., vanilla: _Optional[_Union[_kernel_pb2.Vanilla, _Mapping]] = ..., clustered: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ..., cast: _Optional[_Union[_kernel_pb2.Cast, _Mapping]] = ..., automatic: _Optional[_Union[_kernel_pb2.Automatic, _Mapping]] = ..., output: _Optional[_Union[_tensor_pb2.SharedMemoryRef, _Mapping]] = ..., return_log_sum_exp: bool = ..., value_is_key_prefix: bool = ..., value_dim: _Optional[int] = ..., positions: _Optional[_Union[Positions, _Mapping]] = ..., softcap: _Optional[float] = ..., key_bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Positions(_message.Message):
    __slots__ = ("query", "key", "window", "always_visible", "alibi_slopes", "relative_bias")
    class Window(_message.Message):
        __slots__ = ("left", "right")
        LEFT_FIELD_NUMBER: _ClassVar[int]
        RIGHT_FIELD_NUMBER: _ClassVar[int]
        left: int
        right: int
        def __init__(self, left: _Optional[int] = ..., right: _Optional[int] = ...) -> None: ...
    QUERY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ALWAYS_VISIBLE_FIELD_NUMBER: _ClassVar[int]
    ALIBI_SLOPES_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_BIAS_FIELD_NUMBER: _ClassVar[int]
    query: _containers.RepeatedScalarFieldContainer[int]
    key: _containers.RepeatedScalarFieldContainer[int]
    window: Positions.Window
    always_visible: int
    alibi_slopes: _containers.RepeatedScalarFieldContainer[float]
    relative_bias: _tensor_pb2.Tensor
    def __init__(self, query: _Optional[_Iterable[int]] = ..., key: _Optional[_Iterable[int]] = ..., window: _Optional[_Union[Positions.Window, _Mapping]] = ..., always_visible: _Optional[int] = ..., alibi_slopes: _Optional[_Iterable[float]] = ..., relative_bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("request_id", "output", "kernel", "timing", "batch", "memory", "fidelity", "log_sum_exp", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_FIELD_NUMBER: _ClassVar[int]
    LOG_SUM_EXP_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    output: _tensor_pb2.Tensor
    kernel: _report_pb2.KernelReport
    timing: _report_pb2.Timing
    batch: _report_pb2.BatchReport
    memory: _report_pb2.MemoryReport
    fidelity: _report_pb2.Fidelity
    log_sum_exp: _tensor_pb2.Tensor
    error: _status_pb2.Status
    def __init__(self, request_id: _Optional[str] = ..., output: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., kernel: _Optional[_Union[_report_pb2.KernelReport, _Mapping]] = ..., timing: _Optional[_Union[_report_pb2.Timing, _Mapping]] = ..., batch: _Optional[_Union[_report_pb2.BatchReport, _Mapping]] = ..., memory: _Optional[_Union[_report_pb2.MemoryReport, _Mapping]] = ..., fidelity: _Optional[_Union[_report_pb2.Fidelity, _Mapping]] = ..., log_sum_exp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
