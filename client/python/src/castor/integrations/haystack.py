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
    """Embeds queries."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        model: str = "",
        client: dict[str, Any] | None = None,
        prefix: str = "",
        suffix: str = "",
    ) -> None:
        self.target, self.model, self.client = target, model, client
        self.prefix, self.suffix = prefix, suffix
        self._client = Client(target, **(client or {}))

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        text = self.prefix + text + self.suffix
        return {"embedding": self._client.encode_query(text, model=self.model).tolist()}


@component
class CastorDocumentEmbedder:
    """Embeds copies of documents: their contents, and meta fields if asked for."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        model: str = "",
        client: dict[str, Any] | None = None,
        prefix: str = "",
        suffix: str = "",
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
    ) -> None:
        self.target, self.model, self.client = target, model, client
        self.prefix, self.suffix = prefix, suffix
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.embedding_separator = embedding_separator
        self._client = Client(target, **(client or {}))

    def _text(self, document: Document) -> str:
        meta = [document.meta.get(field) for field in self.meta_fields_to_embed]
        parts = [*(str(each) for each in meta if each is not None), document.content or ""]
        return self.prefix + self.embedding_separator.join(parts) + self.suffix

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        texts = [self._text(document) for document in documents]
        rows = self._client.encode_document(texts, model=self.model).tolist()
        return {"documents": [replace(d, embedding=row) for d, row in zip(documents, rows)]}
