from castor.v1 import kernel_pb2 as _kernel_pb2
from castor.v1 import report_pb2 as _report_pb2
from castor.v1 import tensor_pb2 as _tensor_pb2
from castor.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodeOutput(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODE_OUTPUT_DEFAULT: _ClassVar[EncodeOutput]
    TOKEN_EMBEDDINGS: _ClassVar[EncodeOutput]
    POOLED: _ClassVar[EncodeOutput]
    LOGITS: _ClassVar[EncodeOutput]
    SCORES: _ClassVar[EncodeOutput]
    SPARSE: _ClassVar[EncodeOutput]

class Pooling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOLING_DEFAULT: _ClassVar[Pooling]
    MEAN: _ClassVar[Pooling]
    CLS: _ClassVar[Pooling]
    LAST_TOKEN: _ClassVar[Pooling]
    MAXIMUM: _ClassVar[Pooling]
    WEIGHTED_MEAN: _ClassVar[Pooling]
    MEAN_SQRT_LENGTH: _ClassVar[Pooling]
    SEVERAL: _ClassVar[Pooling]

class TruncationSide(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_SIDE_DEFAULT: _ClassVar[TruncationSide]
    LEFT: _ClassVar[TruncationSide]
    RIGHT: _ClassVar[TruncationSide]
ENCODE_OUTPUT_DEFAULT: EncodeOutput
TOKEN_EMBEDDINGS: EncodeOutput
POOLED: EncodeOutput
LOGITS: EncodeOutput
SCORES: EncodeOutput
SPARSE: EncodeOutput
POOLING_DEFAULT: Pooling
MEAN: Pooling
CLS: Pooling
LAST_TOKEN: Pooling
MAXIMUM: Pooling
WEIGHTED_MEAN: Pooling
MEAN_SQRT_LENGTH: Pooling
SEVERAL: Pooling
TRUNCATION_SIDE_DEFAULT: TruncationSide
LEFT: TruncationSide
RIGHT: TruncationSide

class TextBatch(_message.Message):
    __slots__ = ("texts", "pairs", "allow_special_tokens")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    pairs: _containers.RepeatedScalarFieldContainer[str]
    allow_special_tokens: bool
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., pairs: _Optional[_Iterable[str]] = ..., allow_special_tokens: bool = ...) -> None: ...

class TokenBatch(_message.Message):
    __slots__ = ("ids", "type_ids", "lengths")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TYPE_IDS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    type_ids: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., type_ids: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class EmbeddingBatch(_message.Message):
    __slots__ = ("values", "lengths")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    values: _tensor_pb2.Tensor
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class Spans(_message.Message):
    __slots__ = ("unit", "ranges")
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIT_DEFAULT: _ClassVar[Spans.Unit]
        CHARACTERS: _ClassVar[Spans.Unit]
        BYTES: _ClassVar[Spans.Unit]
        TOKENS: _ClassVar[Spans.Unit]
    UNIT_DEFAULT: Spans.Unit
    CHARACTERS: Spans.Unit
    BYTES: Spans.Unit
    TOKENS: Spans.Unit
    class Range(_message.Message):
        __slots__ = ("sequence", "begin", "end", "pair")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        BEGIN_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        PAIR_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        begin: int
        end: int
        pair: bool
        def __init__(self, sequence: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., pair: bool = ...) -> None: ...
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    unit: Spans.Unit
    ranges: _containers.RepeatedCompositeFieldContainer[Spans.Range]
    def __init__(self, unit: _Optional[_Union[Spans.Unit, str]] = ..., ranges: _Optional[_Iterable[_Union[Spans.Range, _Mapping]]] = ...) -> None: ...

class PooledSpan(_message.Message):
    __slots__ = ("begin", "end", "truncated")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    truncated: bool
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., truncated: bool = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("request_id", "model", "texts", "tokens", "embeddings", "vanilla", "clustered", "improved_clustered", "cast", "automatic", "output", "pooling", "normalize", "dimensions", "truncate", "priority", "check_finite", "spans", "prompt_name", "truncation_side", "max_tokens", "timeout_ms", "outputs", "output_type", "ranges", "prompt", "task")
    class OutputType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTPUT_TYPE_DEFAULT: _ClassVar[EncodeRequest.OutputType]
        FLOAT32: _ClassVar[EncodeRequest.OutputType]
        FLOAT16: _ClassVar[EncodeRequest.OutputType]
        BFLOAT16: _ClassVar[EncodeRequest.OutputType]
        INT8: _ClassVar[EncodeRequest.OutputType]
        UINT8: _ClassVar[EncodeRequest.OutputType]
        BINARY: _ClassVar[EncodeRequest.OutputType]
        UBINARY: _ClassVar[EncodeRequest.OutputType]
    OUTPUT_TYPE_DEFAULT: EncodeRequest.OutputType
    FLOAT32: EncodeRequest.OutputType
    FLOAT16: EncodeRequest.OutputType
    BFLOAT16: EncodeRequest.OutputType
    INT8: EncodeRequest.OutputType
    UINT8: EncodeRequest.OutputType
    BINARY: EncodeRequest.OutputType
    UBINARY: EncodeRequest.OutputType
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    VANILLA_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CHECK_FINITE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    texts: TextBatch
    tokens: TokenBatch
    embeddings: EmbeddingBatch
    vanilla: _kernel_pb2.Vanilla
    clustered: _kernel_pb2.Clustered
    improved_clustered: _kernel_pb2.ImprovedClustered
    cast: _kernel_pb2.Cast
    automatic: _kernel_pb2.Automatic
    output: EncodeOutput
    pooling: Pooling
    normalize: bool
    dimensions: int
    truncate: bool
    priority: _report_pb2.Priority
    check_finite: bool
    spans: Spans
    prompt_name: str
    truncation_side: TruncationSide
    max_tokens: int
    timeout_ms: int
    outputs: _containers.RepeatedScalarFieldContainer[EncodeOutput]
    output_type: EncodeRequest.OutputType
    ranges: _tensor_pb2.Tensor
    prompt: str
    task: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., texts: _Optional[_Union[TextBatch, _Mapping]] = ..., tokens: _Optional[_Union[TokenBatch, _Mapping]] = ..., embeddings: _Optional[_Union[EmbeddingBatch, _Mapping]] = ..., vanilla: _Optional[_Union[_kernel_pb2.Vanilla, _Mapping]] = ..., clustered: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ..., cast: _Optional[_Union[_kernel_pb2.Cast, _Mapping]] = ..., automatic: _Optional[_Union[_kernel_pb2.Automatic, _Mapping]] = ..., output: _Optional[_Union[EncodeOutput, str]] = ..., pooling: _Optional[_Union[Pooling, str]] = ..., normalize: bool = ..., dimensions: _Optional[int] = ..., truncate: bool = ..., priority: _Optional[_Union[_report_pb2.Priority, str]] = ..., check_finite: bool = ..., spans: _Optional[_Union[Spans, _Mapping]] = ..., prompt_name: _Optional[str] = ..., truncation_side: _Optional[_Union[TruncationSide, str]] = ..., max_tokens: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[EncodeOutput, str]]] = ..., output_type: _Optional[_Union[EncodeRequest.OutputType, str]] = ..., ranges: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., prompt: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class SparseRows(_message.Message):
    __slots__ = ("indices", "values", "lengths")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class OutputRows(_message.Message):
    __slots__ = ("output", "values", "lengths", "sparse")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    output: EncodeOutput
    values: _tensor_pb2.Tensor
    lengths: _containers.RepeatedScalarFieldContainer[int]
    sparse: SparseRows
    def __init__(self, output: _Optional[_Union[EncodeOutput, str]] = ..., values: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., lengths: _Optional[_Iterable[int]] = ..., sparse: _Optional[_Union[SparseRows, _Mapping]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("request_id", "output", "lengths", "token_counts", "truncated", "labels", "kernel", "timing", "batch", "memory", "model", "error", "spans", "prompt_name", "sparse", "outputs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    output: _tensor_pb2.Tensor
    lengths: _containers.RepeatedScalarFieldContainer[int]
    token_counts: _containers.RepeatedScalarFieldContainer[int]
    truncated: _containers.RepeatedScalarFieldContainer[bool]
    labels: _containers.RepeatedScalarFieldContainer[str]
    kernel: _report_pb2.KernelReport
    timing: _report_pb2.Timing
    batch: _report_pb2.BatchReport
    memory: _report_pb2.MemoryReport
    model: str
    error: _status_pb2.Status
    spans: _containers.RepeatedCompositeFieldContainer[PooledSpan]
    prompt_name: str
    sparse: SparseRows
    outputs: _containers.RepeatedCompositeFieldContainer[OutputRows]
    def __init__(self, request_id: _Optional[str] = ..., output: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., lengths: _Optional[_Iterable[int]] = ..., token_counts: _Optional[_Iterable[int]] = ..., truncated: _Optional[_Iterable[bool]] = ..., labels: _Optional[_Iterable[str]] = ..., kernel: _Optional[_Union[_report_pb2.KernelReport, _Mapping]] = ..., timing: _Optional[_Union[_report_pb2.Timing, _Mapping]] = ..., batch: _Optional[_Union[_report_pb2.BatchReport, _Mapping]] = ..., memory: _Optional[_Union[_report_pb2.MemoryReport, _Mapping]] = ..., model: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[PooledSpan, _Mapping]]] = ..., prompt_name: _Optional[str] = ..., sparse: _Optional[_Union[SparseRows, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[OutputRows, _Mapping]]] = ...) -> None: ...

class RerankRequest(_message.Message):
    __slots__ = ("request_id", "model", "query", "documents", "top_n", "vanilla", "clustered", "improved_clustered", "cast", "automatic", "return_documents", "allow_special_tokens", "truncate", "priority", "prompt_name", "truncation_side", "max_tokens", "timeout_ms", "prompt", "instruction", "task")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    VANILLA_FIELD_NUMBER: _ClassVar[int]
    CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    RETURN_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    query: str
    documents: _containers.RepeatedScalarFieldContainer[str]
    top_n: int
    vanilla: _kernel_pb2.Vanilla
    clustered: _kernel_pb2.Clustered
    improved_clustered: _kernel_pb2.ImprovedClustered
    cast: _kernel_pb2.Cast
    automatic: _kernel_pb2.Automatic
    return_documents: bool
    allow_special_tokens: bool
    truncate: bool
    priority: _report_pb2.Priority
    prompt_name: str
    truncation_side: TruncationSide
    max_tokens: int
    timeout_ms: int
    prompt: str
    instruction: str
    task: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., query: _Optional[str] = ..., documents: _Optional[_Iterable[str]] = ..., top_n: _Optional[int] = ..., vanilla: _Optional[_Union[_kernel_pb2.Vanilla, _Mapping]] = ..., clustered: _Optional[_Union[_kernel_pb2.Clustered, _Mapping]] = ..., improved_clustered: _Optional[_Union[_kernel_pb2.ImprovedClustered, _Mapping]] = ..., cast: _Optional[_Union[_kernel_pb2.Cast, _Mapping]] = ..., automatic: _Optional[_Union[_kernel_pb2.Automatic, _Mapping]] = ..., return_documents: bool = ..., allow_special_tokens: bool = ..., truncate: bool = ..., priority: _Optional[_Union[_report_pb2.Priority, str]] = ..., prompt_name: _Optional[str] = ..., truncation_side: _Optional[_Union[TruncationSide, str]] = ..., max_tokens: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., prompt: _Optional[str] = ..., instruction: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class RankedDocument(_message.Message):
    __slots__ = ("index", "score", "logit", "document")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LOGIT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    score: float
    logit: float
    document: str
    def __init__(self, index: _Optional[int] = ..., score: _Optional[float] = ..., logit: _Optional[float] = ..., document: _Optional[str] = ...) -> None: ...

class RerankResponse(_message.Message):
    __slots__ = ("request_id", "model", "results", "token_counts", "truncated", "kernel", "timing", "batch", "memory", "prompt_name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    results: _containers.RepeatedCompositeFieldContainer[RankedDocument]
    token_counts: _containers.RepeatedScalarFieldContainer[int]
    truncated: _containers.RepeatedScalarFieldContainer[bool]
    kernel: _report_pb2.KernelReport
    timing: _report_pb2.Timing
    batch: _report_pb2.BatchReport
    memory: _report_pb2.MemoryReport
    prompt_name: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., results: _Optional[_Iterable[_Union[RankedDocument, _Mapping]]] = ..., token_counts: _Optional[_Iterable[int]] = ..., truncated: _Optional[_Iterable[bool]] = ..., kernel: _Optional[_Union[_report_pb2.KernelReport, _Mapping]] = ..., timing: _Optional[_Union[_report_pb2.Timing, _Mapping]] = ..., batch: _Optional[_Union[_report_pb2.BatchReport, _Mapping]] = ..., memory: _Optional[_Union[_report_pb2.MemoryReport, _Mapping]] = ..., prompt_name: _Optional[str] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("request_id", "model", "texts", "add_special_tokens", "return_tokens", "truncate", "priority", "prompt_name", "truncation_side", "max_tokens", "timeout_ms", "prompt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    texts: TextBatch
    add_special_tokens: bool
    return_tokens: bool
    truncate: bool
    priority: _report_pb2.Priority
    prompt_name: str
    truncation_side: TruncationSide
    max_tokens: int
    timeout_ms: int
    prompt: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., texts: _Optional[_Union[TextBatch, _Mapping]] = ..., add_special_tokens: bool = ..., return_tokens: bool = ..., truncate: bool = ..., priority: _Optional[_Union[_report_pb2.Priority, str]] = ..., prompt_name: _Optional[str] = ..., truncation_side: _Optional[_Union[TruncationSide, str]] = ..., max_tokens: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., prompt: _Optional[str] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("request_id", "model", "ids", "type_ids", "special", "pair", "byte_begins", "byte_ends", "character_begins", "character_ends", "tokens", "lengths", "truncated", "prompt_name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TYPE_IDS_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    BYTE_BEGINS_FIELD_NUMBER: _ClassVar[int]
    BYTE_ENDS_FIELD_NUMBER: _ClassVar[int]
    CHARACTER_BEGINS_FIELD_NUMBER: _ClassVar[int]
    CHARACTER_ENDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    type_ids: _containers.RepeatedScalarFieldContainer[int]
    special: _containers.RepeatedScalarFieldContainer[bool]
    pair: _containers.RepeatedScalarFieldContainer[bool]
    byte_begins: _containers.RepeatedScalarFieldContainer[int]
    byte_ends: _containers.RepeatedScalarFieldContainer[int]
    character_begins: _containers.RepeatedScalarFieldContainer[int]
    character_ends: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    truncated: _containers.RepeatedScalarFieldContainer[bool]
    prompt_name: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., type_ids: _Optional[_Iterable[int]] = ..., special: _Optional[_Iterable[bool]] = ..., pair: _Optional[_Iterable[bool]] = ..., byte_begins: _Optional[_Iterable[int]] = ..., byte_ends: _Optional[_Iterable[int]] = ..., character_begins: _Optional[_Iterable[int]] = ..., character_ends: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[str]] = ..., lengths: _Optional[_Iterable[int]] = ..., truncated: _Optional[_Iterable[bool]] = ..., prompt_name: _Optional[str] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("request_id", "model", "tokens", "skip_special_tokens", "priority", "timeout_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    tokens: TokenBatch
    skip_special_tokens: bool
    priority: _report_pb2.Priority
    timeout_ms: int
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., tokens: _Optional[_Union[TokenBatch, _Mapping]] = ..., skip_special_tokens: bool = ..., priority: _Optional[_Union[_report_pb2.Priority, str]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("request_id", "model", "texts")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ...) -> None: ...
