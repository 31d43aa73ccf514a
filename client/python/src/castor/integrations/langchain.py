"""castor.integrations.langchain.CastorEmbeddings: needs langchain-core."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from castor import AsyncClient, Client


class CastorEmbeddings(Embeddings):
    """LangChain's embeddings. Takes Client's keywords; the a-methods are natively asynchronous."""

    def __init__(self, target: str = "127.0.0.1:50051", model: str = "", **client: Any) -> None:
        self.client, self.aclient = Client(target, **client), AsyncClient(target, **client)
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.client.encode_document(texts, model=self.model).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.client.encode_query(text, model=self.model).tolist()

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return (await self.aclient.encode_document(texts, model=self.model)).tolist()

    async def aembed_query(self, text: str) -> list[float]:
        return (await self.aclient.encode_query(text, model=self.model)).tolist()
