"""A client of Castor: embeddings, scores and attention over gRPC. README.md is a tour.

client = castor.Client("127.0.0.1:50051")
rows = client.encode(["a beaver builds a dam", "a rodent at work"])
"""

from castor.aio import AsyncClient
from castor.attention import Memory, Positions
from castor.channel import TLS
from castor.client import Client
from castor.cross_encoder import CrossEncoder, SparseEncoder
from castor.errors import (
    CancelledError,
    CastorError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    InvalidFieldError,
    KernelNotAvailableError,
    MalformedMessageError,
    ModelControlOffError,
    ModelNotFoundError,
    NonFiniteInputError,
    NotServedError,
    OutOfMemoryError,
    PermissionDeniedError,
    QueueFullError,
    RegionExistsError,
    RegionNotFoundError,
    SharedMemoryOffError,
    TooLargeError,
    TooManyRegionsError,
    TruncationWarning,
    UnauthenticatedError,
    UnavailableError,
    WrongAnswerError,
)
from castor.kernels import Automatic, Cast, Clustered, ImprovedClustered, Kernel, Vanilla
from castor.reports import Attention, Encoded, Fidelity, Report, Spans, Sparse, Timing, Tokens
from castor.sentence_transformer import SentenceTransformer
from castor.tensors import merge, quantize

__all__ = [
    "AsyncClient",
    "Attention",
    "Automatic",
    "CancelledError",
    "Cast",
    "CastorError",
    "Client",
    "Clustered",
    "CrossEncoder",
    "DeadlineExceededError",
    "DrainingError",
    "Encoded",
    "Fidelity",
    "ImprovedClustered",
    "InternalError",
    "InvalidFieldError",
    "Kernel",
    "KernelNotAvailableError",
    "MalformedMessageError",
    "Memory",
    "ModelControlOffError",
    "ModelNotFoundError",
    "NonFiniteInputError",
    "NotServedError",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "Positions",
    "QueueFullError",
    "RegionExistsError",
    "RegionNotFoundError",
    "Report",
    "SentenceTransformer",
    "SharedMemoryOffError",
    "Spans",
    "Sparse",
    "SparseEncoder",
    "TLS",
    "Timing",
    "Tokens",
    "TooLargeError",
    "TooManyRegionsError",
    "TruncationWarning",
    "UnauthenticatedError",
    "UnavailableError",
    "Vanilla",
    "WrongAnswerError",
    "merge",
    "quantize",
]
