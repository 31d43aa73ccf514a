from castor.v1 import kernel_pb2 as _kernel_pb2
from castor.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Device(_message.Message):
    __slots__ = ("name", "description", "memory_bytes", "threads", "backend")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    memory_bytes: int
    threads: int
    backend: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., threads: _Optional[int] = ..., backend: _Optional[str] = ...) -> None: ...

class KernelInfo(_message.Message):
    __slots__ = ("name", "dtypes", "backend", "log_sum_exp", "positions", "softcap", "key_bias")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    LOG_SUM_EXP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTCAP_FIELD_NUMBER: _ClassVar[int]
    KEY_BIAS_FIELD_NUMBER: _ClassVar[int]
    name: _kernel_pb2.KernelName
    dtypes: _containers.RepeatedScalarFieldContainer[_tensor_pb2.DataType]
    backend: str
    log_sum_exp: bool
    positions: bool
    softcap: bool
    key_bias: bool
    def __init__(self, name: _Optional[_Union[_kernel_pb2.KernelName, str]] = ..., dtypes: _Optional[_Iterable[_Union[_tensor_pb2.DataType, str]]] = ..., backend: _Optional[str] = ..., log_sum_exp: bool = ..., positions: bool = ..., softcap: bool = ..., key_bias: bool = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_queued_requests", "max_queued_tokens", "max_queued_bytes", "max_batch_tokens", "max_batch_requests", "max_sequences", "max_text_bytes", "max_shared_memory_regions", "max_queued_time_ms", "max_request_time_ms", "max_device_bytes", "shared_memory_key_prefix")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARED_MEMORY_REGIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_queued_requests: int
    max_queued_tokens: int
    max_queued_bytes: int
    max_batch_tokens: int
    max_batch_requests: int
    max_sequences: int
    max_text_bytes: int
    max_shared_memory_regions: int
    max_queued_time_ms: int
    max_request_time_ms: int
    max_device_bytes: int
    shared_memory_key_prefix: str
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_queued_requests: _Optional[int] = ..., max_queued_tokens: _Optional[int] = ..., max_queued_bytes: _Optional[int] = ..., max_batch_tokens: _Optional[int] = ..., max_batch_requests: _Optional[int] = ..., max_sequences: _Optional[int] = ..., max_text_bytes: _Optional[int] = ..., max_shared_memory_regions: _Optional[int] = ..., max_queued_time_ms: _Optional[int] = ..., max_request_time_ms: _Optional[int] = ..., max_device_bytes: _Optional[int] = ..., shared_memory_key_prefix: _Optional[str] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("version", "git_commit", "devices", "kernels", "models", "limits", "clustered_defaults", "improved_clustered_defaults", "uptime_seconds", "metrics_address")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GIT_COMMIT_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    version: str
    git_commit: str
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    kernels: _containers.RepeatedCompositeFieldContainer[KernelInfo]
    models: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    clustered_defaults: _kernel_pb2.Clustered
    improved_clustered_defaults: _kernel_pb2.ImprovedClustered
    uptime_seconds: float
    metrics_address: str
    def __init__(self, version: _Optional[str] = ..., git_commit: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., kernels: _Optional[_Iterable[_Union[KernelInfo, _Mapping]]] = ..., models: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., clustered_defaults: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered_defaults: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ..., uptime_seconds: _Optional[float] = ..., metrics_address: _Optional[str] = ...) -> None: ...
