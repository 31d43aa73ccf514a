"""castor.integrations.llama_index.CastorEmbedding: needs llama-index-core."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr

from castor import AsyncClient, Client


class CastorEmbedding(BaseEmbedding):
    """LlamaIndex's embedding. `client`: further keywords of castor.Client."""

    target: str = Field(default="127.0.0.1:50051")
    model_name: str = Field(default="", description="default: the server's only one")
    client: dict[str, Any] = Field(default_factory=dict, exclude=True)  # it may have a token
    _client: Client = PrivateAttr()
    _aclient: AsyncClient = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        return "CastorEmbedding"

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._client = Client(self.target, **self.client)
        self._aclient = AsyncClient(self.target, **self.client)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._client.encode_query(query, model=self.model_name).tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._client.encode_document(text, model=self.model_name).tolist()

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._client.encode_document(texts, model=self.model_name).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await self._aclient.encode_query(query, model=self.model_name)).tolist()

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aclient.encode_document(text, model=self.model_name)).tolist()

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return (await self._aclient.encode_document(texts, model=self.model_name)).tolist()
