"""castor.integrations.mteb.CastorEncoder: an MTEB model, to measure what kernels cost in quality.

Needs mteb 2 and torch. mteb.evaluate(CastorEncoder("127.0.0.1:50051"), tasks) runs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.types import PromptType

from castor import SentenceTransformer


class CastorEncoder:
    """`options` are those of Client.encode: kernel, normalize_embeddings, precision and so on."""

    def __init__(
        self, target: str = "127.0.0.1:50051", model: str = "", *, name: str = "", **options: Any
    ) -> None:
        self._encoder = SentenceTransformer(target, model)
        self._options = options
        # MTEB files results under this name, such as "castor/minilm".
        name = name or f"castor/{model or 'default'}"
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": "served"})

    def encode(self, inputs: Any, *, prompt_type: PromptType | None = None, **_: Any) -> Any:
        texts = [text for batch in inputs for text in batch["text"]]
        encode = self._encoder.encode  # as MTEB's own wrapper, where texts have no role
        if prompt_type is not None:
            of_query = prompt_type == PromptType.query
            encode = self._encoder.encode_query if of_query else self._encoder.encode_document
        return np.asarray(encode(texts, **self._options))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return torch.as_tensor(self._encoder.similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        return torch.as_tensor(self._encoder.similarity_pairwise(embeddings1, embeddings2))
