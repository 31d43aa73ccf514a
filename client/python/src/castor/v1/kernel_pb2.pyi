from castor.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KernelName(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KERNEL_NAME_UNSPECIFIED: _ClassVar[KernelName]
    VANILLA: _ClassVar[KernelName]
    CLUSTERED: _ClassVar[KernelName]
    IMPROVED_CLUSTERED: _ClassVar[KernelName]
    CAST: _ClassVar[KernelName]

class QueryClustering(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUERY_CLUSTERING_DEFAULT: _ClassVar[QueryClustering]
    HASH: _ClassVar[QueryClustering]
    QUERY_SPACE: _ClassVar[QueryClustering]
KERNEL_NAME_UNSPECIFIED: KernelName
VANILLA: KernelName
CLUSTERED: KernelName
IMPROVED_CLUSTERED: KernelName
CAST: KernelName
QUERY_CLUSTERING_DEFAULT: QueryClustering
HASH: QueryClustering
QUERY_SPACE: QueryClustering
PARAMETER_FIELD_NUMBER: _ClassVar[int]
parameter: _descriptor.FieldDescriptor

class Parameter(_message.Message):
    __slots__ = ("least", "most", "absent")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    least: float
    most: float
    absent: str
    def __init__(self, least: _Optional[float] = ..., most: _Optional[float] = ..., absent: _Optional[str] = ...) -> None: ...

class Vanilla(_message.Message):
    __slots__ = ("causal",)
    CAUSAL_FIELD_NUMBER: _ClassVar[int]
    causal: bool
    def __init__(self, causal: bool = ...) -> None: ...

class Clustered(_message.Message):
    __slots__ = ("clusters", "iterations", "bits", "hash_bias", "seed", "clustering")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    HASH_BIAS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CLUSTERING_FIELD_NUMBER: _ClassVar[int]
    clusters: int
    iterations: int
    bits: int
    hash_bias: bool
    seed: int
    clustering: QueryClustering
    def __init__(self, clusters: _Optional[int] = ..., iterations: _Optional[int] = ..., bits: _Optional[int] = ..., hash_bias: bool = ..., seed: _Optional[int] = ..., clustering: _Optional[_Union[QueryClustering, str]] = ...) -> None: ...

class ImprovedClustered(_message.Message):
    __slots__ = ("clusters", "iterations", "bits", "hash_bias", "seed", "topk", "clustering", "rest_mass", "rest_groups")
    class RestMass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REST_MASS_DEFAULT: _ClassVar[ImprovedClustered.RestMass]
        CENTROID: _ClassVar[ImprovedClustered.RestMass]
        QUERY: _ClassVar[ImprovedClustered.RestMass]
    REST_MASS_DEFAULT: ImprovedClustered.RestMass
    CENTROID: ImprovedClustered.RestMass
    QUERY: ImprovedClustered.RestMass
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    HASH_BIAS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TOPK_FIELD_NUMBER: _ClassVar[int]
    CLUSTERING_FIELD_NUMBER: _ClassVar[int]
    REST_MASS_FIELD_NUMBER: _ClassVar[int]
    REST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    clusters: int
    iterations: int
    bits: int
    hash_bias: bool
    seed: int
    topk: int
    clustering: QueryClustering
    rest_mass: ImprovedClustered.RestMass
    rest_groups: int
    def __init__(self, clusters: _Optional[int] = ..., iterations: _Optional[int] = ..., bits: _Optional[int] = ..., hash_bias: bool = ..., seed: _Optional[int] = ..., topk: _Optional[int] = ..., clustering: _Optional[_Union[QueryClustering, str]] = ..., rest_mass: _Optional[_Union[ImprovedClustered.RestMass, str]] = ..., rest_groups: _Optional[int] = ...) -> None: ...

class Cast(_message.Message):
    __slots__ = ("surrogate_tokens", "layer", "gate", "clustering", "cluster_size", "attention_function", "gate_temperature", "head_clustering")
    class Clustering(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CLUSTERING_DEFAULT: _ClassVar[Cast.Clustering]
        TOP_K: _ClassVar[Cast.Clustering]
        SINGLE_ASSIGNMENT_TOP_K: _ClassVar[Cast.Clustering]
    CLUSTERING_DEFAULT: Cast.Clustering
    TOP_K: Cast.Clustering
    SINGLE_ASSIGNMENT_TOP_K: Cast.Clustering
    class AttentionFunction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ATTENTION_FUNCTION_DEFAULT: _ClassVar[Cast.AttentionFunction]
        SOFTMAX: _ClassVar[Cast.AttentionFunction]
        LAPLACE: _ClassVar[Cast.AttentionFunction]
    ATTENTION_FUNCTION_DEFAULT: Cast.AttentionFunction
    SOFTMAX: Cast.AttentionFunction
    LAPLACE: Cast.AttentionFunction
    class GateTemperature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GATE_TEMPERATURE_DEFAULT: _ClassVar[Cast.GateTemperature]
        SOFTPLUS1: _ClassVar[Cast.GateTemperature]
        NONE: _ClassVar[Cast.GateTemperature]
    GATE_TEMPERATURE_DEFAULT: Cast.GateTemperature
    SOFTPLUS1: Cast.GateTemperature
    NONE: Cast.GateTemperature
    class HeadClustering(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HEAD_CLUSTERING_DEFAULT: _ClassVar[Cast.HeadClustering]
        SHARED: _ClassVar[Cast.HeadClustering]
        PER_HEAD: _ClassVar[Cast.HeadClustering]
    HEAD_CLUSTERING_DEFAULT: Cast.HeadClustering
    SHARED: Cast.HeadClustering
    PER_HEAD: Cast.HeadClustering
    SURROGATE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    CLUSTERING_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SIZE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    GATE_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    HEAD_CLUSTERING_FIELD_NUMBER: _ClassVar[int]
    surrogate_tokens: _tensor_pb2.Tensor
    layer: str
    gate: _tensor_pb2.Tensor
    clustering: Cast.Clustering
    cluster_size: int
    attention_function: Cast.AttentionFunction
    gate_temperature: Cast.GateTemperature
    head_clustering: Cast.HeadClustering
    def __init__(self, surrogate_tokens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., layer: _Optional[str] = ..., gate: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., clustering: _Optional[_Union[Cast.Clustering, str]] = ..., cluster_size: _Optional[int] = ..., attention_function: _Optional[_Union[Cast.AttentionFunction, str]] = ..., gate_temperature: _Optional[_Union[Cast.GateTemperature, str]] = ..., head_clustering: _Optional[_Union[Cast.HeadClustering, str]] = ...) -> None: ...

class Automatic(_message.Message):
    __slots__ = ("allowed", "max_relative_error")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    allowed: _containers.RepeatedScalarFieldContainer[KernelName]
    max_relative_error: float
    def __init__(self, allowed: _Optional[_Iterable[_Union[KernelName, str]]] = ..., max_relative_error: _Optional[float] = ...) -> None: ...
