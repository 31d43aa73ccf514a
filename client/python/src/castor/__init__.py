"""A client of Castor: embeddings, scores and attention over gRPC. README.md is a tour.

client = castor.Client("127.0.0.1:50051")
rows = client.encode(["a beaver builds a dam", "a rodent at work"])
"""

from castor.aio import AsyncClient as AsyncClient
from castor.attention import Memory as Memory
from castor.attention import Positions as Positions
from castor.channel import TLS as TLS
from castor.client import Client as Client
from castor.errors import *  # noqa: F403
from castor.kernels import Automatic as Automatic
from castor.kernels import Cast as Cast
from castor.kernels import Clustered as Clustered
from castor.kernels import ImprovedClustered as ImprovedClustered
from castor.kernels import Kernel as Kernel
from castor.kernels import Vanilla as Vanilla
from castor.reports import Attention as Attention
from castor.reports import Encoded as Encoded
from castor.reports import Report as Report
from castor.reports import Spans as Spans
from castor.reports import Sparse as Sparse
from castor.reports import Tokens as Tokens
from castor.sentence_transformers import CrossEncoder as CrossEncoder
from castor.sentence_transformers import SentenceTransformer as SentenceTransformer
from castor.sentence_transformers import SparseEncoder as SparseEncoder
from castor.serving import LocalServer as LocalServer
from castor.serving import ServerStartError as ServerStartError
from castor.serving import serve as serve
from castor.serving import start_server as start_server
from castor.tensors import merge as merge
from castor.tensors import quantize as quantize
from castor.v1.report_pb2 import Fidelity as Fidelity
from castor.v1.report_pb2 import Timing as Timing
