"""castor.integrations.langchain.CastorEmbeddings: needs langchain-core."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from castor import AsyncClient, Client


class CastorEmbeddings(Embeddings):
    """LangChain's embeddings. Takes Client's keywords; the a-methods are natively asynchronous."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        model: str = "",
        *,
        truncate_dim: int | None = None,
        normalize_embeddings: bool | None = None,
        **client: Any,
    ) -> None:
        self.client, self.aclient = Client(target, **client), AsyncClient(target, **client)
        self.model, self._options = model, {"model": model, "truncate_dim": truncate_dim}
        self._options["normalize_embeddings"] = normalize_embeddings

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.client.encode_document(texts, **self._options).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.client.encode_query(text, **self._options).tolist()

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return (await self.aclient.encode_document(texts, **self._options)).tolist()

    async def aembed_query(self, text: str) -> list[float]:
        return (await self.aclient.encode_query(text, **self._options)).tolist()
