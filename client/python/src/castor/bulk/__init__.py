"""Bulk work: files of texts into files of vectors. castor-embed is its program."""

try:
    import pyarrow as _  # noqa: F401
except ImportError:
    raise ImportError("castor.bulk needs pyarrow: pip install 'castor-client[bulk]'") from None

from castor.bulk.embedder import Embedder as Embedder
from castor.bulk.embedder import ModelChangedError as ModelChangedError
