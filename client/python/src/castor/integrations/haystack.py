"""castor.integrations.haystack: embedders for pipelines; needs haystack-ai.

`client`: further keywords of castor.Client. Pipelines are saved with them: keep a token in a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component

from castor import Client


@component
class CastorTextEmbedder:
    """Of queries."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        model: str = "",
        client: dict[str, Any] | None = None,
    ) -> None:
        self.target, self.model, self.client = target, model, client
        self._client = Client(target, **(client or {}))

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": self._client.encode_query(text, model=self.model).tolist()}


@component
class CastorDocumentEmbedder:
    """Of documents, which it copies."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        model: str = "",
        client: dict[str, Any] | None = None,
    ) -> None:
        self.target, self.model, self.client = target, model, client
        self._client = Client(target, **(client or {}))

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        texts = [document.content or "" for document in documents]
        rows = self._client.encode_document(texts, model=self.model).tolist()
        return {"documents": [replace(d, embedding=row) for d, row in zip(documents, rows)]}
