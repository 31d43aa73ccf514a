from castor.v1 import encoder_pb2 as _encoder_pb2
from castor.v1 import kernel_pb2 as _kernel_pb2
from castor.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_STATE_UNSPECIFIED: _ClassVar[ModelState]
    UNLOADED: _ClassVar[ModelState]
    WAITING: _ClassVar[ModelState]
    LOADING: _ClassVar[ModelState]
    READY: _ClassVar[ModelState]
    UNLOADING: _ClassVar[ModelState]
    FAILED: _ClassVar[ModelState]
MODEL_STATE_UNSPECIFIED: ModelState
UNLOADED: ModelState
WAITING: ModelState
LOADING: ModelState
READY: ModelState
UNLOADING: ModelState
FAILED: ModelState

class Model(_message.Message):
    __slots__ = ("name", "family", "dtype", "hidden_size", "layers", "heads", "max_tokens", "vocabulary_size", "pooling", "normalize", "kernels", "outputs", "parameters", "weight_bytes", "int8", "prompts", "default_prompt", "labels", "token_labels", "body_size", "dimensions", "truncation_side", "similarity_fn_name", "takes_instruction", "tasks", "needs_task", "state", "pinned", "idle_seconds", "loads", "load_seconds", "failure")
    class Int8(_message.Message):
        __slots__ = ("mean_cosine", "least_cosine")
        MEAN_COSINE_FIELD_NUMBER: _ClassVar[int]
        LEAST_COSINE_FIELD_NUMBER: _ClassVar[int]
        mean_cosine: float
        least_cosine: float
        def __init__(self, mean_cosine: _Optional[float] = ..., least_cosine: _Optional[float] = ...) -> None: ...
    class Prompt(_message.Message):
        __slots__ = ("name", "text", "left_out")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
        name: str
        text: str
        left_out: int
        def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., left_out: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INT8_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PROMPT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LABELS_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FN_NAME_FIELD_NUMBER: _ClassVar[int]
    TAKES_INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_TASK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    LOAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    family: str
    dtype: _tensor_pb2.DataType
    hidden_size: int
    layers: int
    heads: int
    max_tokens: int
    vocabulary_size: int
    pooling: _encoder_pb2.Pooling
    normalize: bool
    kernels: _containers.RepeatedScalarFieldContainer[_kernel_pb2.KernelName]
    outputs: _containers.RepeatedScalarFieldContainer[_encoder_pb2.EncodeOutput]
    parameters: int
    weight_bytes: int
    int8: Model.Int8
    prompts: _containers.RepeatedCompositeFieldContainer[Model.Prompt]
    default_prompt: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    token_labels: bool
    body_size: int
    dimensions: int
    truncation_side: _encoder_pb2.TruncationSide
    similarity_fn_name: str
    takes_instruction: bool
    tasks: _containers.RepeatedScalarFieldContainer[str]
    needs_task: bool
    state: ModelState
    pinned: bool
    idle_seconds: float
    loads: int
    load_seconds: float
    failure: str
    def __init__(self, name: _Optional[str] = ..., family: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., hidden_size: _Optional[int] = ..., layers: _Optional[int] = ..., heads: _Optional[int] = ..., max_tokens: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., pooling: _Optional[_Union[_encoder_pb2.Pooling, str]] = ..., normalize: bool = ..., kernels: _Optional[_Iterable[_Union[_kernel_pb2.KernelName, str]]] = ..., outputs: _Optional[_Iterable[_Union[_encoder_pb2.EncodeOutput, str]]] = ..., parameters: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., int8: _Optional[_Union[Model.Int8, _Mapping]] = ..., prompts: _Optional[_Iterable[_Union[Model.Prompt, _Mapping]]] = ..., default_prompt: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., token_labels: bool = ..., body_size: _Optional[int] = ..., dimensions: _Optional[int] = ..., truncation_side: _Optional[_Union[_encoder_pb2.TruncationSide, str]] = ..., similarity_fn_name: _Optional[str] = ..., takes_instruction: bool = ..., tasks: _Optional[_Iterable[str]] = ..., needs_task: bool = ..., state: _Optional[_Union[ModelState, str]] = ..., pinned: bool = ..., idle_seconds: _Optional[float] = ..., loads: _Optional[int] = ..., load_seconds: _Optional[float] = ..., failure: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("all",)
    ALL_FIELD_NUMBER: _ClassVar[int]
    all: bool
    def __init__(self, all: bool = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("name", "directory", "replace")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory: str
    replace: bool
    def __init__(self, name: _Optional[str] = ..., directory: _Optional[str] = ..., replace: bool = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
