"""The adapters, each with the real library, where that is installed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from conftest import Server

import castor

TEXTS = ["a beaver builds a dam", "interest rates rose"]


def rows(client: castor.Client) -> tuple[np.ndarray, np.ndarray]:
    query = client.encode_query(TEXTS[0], model="prompted")
    return query, client.encode_document(TEXTS, model="prompted")


def test_importing_castor_imports_no_library() -> None:
    import subprocess
    import sys

    program = "import castor, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    libraries = {"torch", "langchain_core", "llama_index", "haystack", "mteb", "tqdm"}
    assert "castor" in modules.split() and not libraries & set(modules.split())


def test_langchain(server: Server, client: castor.Client) -> None:
    vectorstores = pytest.importorskip("langchain_core.vectorstores")
    from castor.integrations.langchain import CastorEmbeddings

    embeddings = CastorEmbeddings(server.target, "prompted")
    query, documents = rows(client)
    assert np.allclose(embeddings.embed_query(TEXTS[0]), query)
    assert np.allclose(embeddings.embed_documents(TEXTS), documents)
    assert np.allclose(asyncio.run(embeddings.aembed_query(TEXTS[0])), query)
    assert np.allclose(asyncio.run(embeddings.aembed_documents(TEXTS)), documents)
    short = CastorEmbeddings(server.target, "prompted", truncate_dim=9, normalize_embeddings=True)
    want = query[:9] / np.linalg.norm(query[:9])
    assert np.allclose(short.embed_query(TEXTS[0]), want, atol=1e-6)
    store = vectorstores.InMemoryVectorStore.from_texts(TEXTS, embeddings)
    assert store.similarity_search("a rodent at work", k=1)[0].page_content == TEXTS[0]


def test_llama_index(server: Server, client: castor.Client) -> None:
    core = pytest.importorskip("llama_index.core")
    from castor.integrations.llama_index import CastorEmbedding

    embedding = CastorEmbedding(
        target=server.target, model_name="prompted", client={"token": "secret"}
    )
    query, documents = rows(client)
    assert np.allclose(embedding.get_query_embedding(TEXTS[0]), query)
    assert np.allclose(embedding.get_text_embedding_batch(TEXTS), documents)
    assert np.allclose(asyncio.run(embedding.aget_query_embedding(TEXTS[0])), query)
    assert np.allclose(asyncio.run(embedding.aget_text_embedding_batch(TEXTS)), documents)
    assert "secret" not in embedding.to_json()
    assert embedding.to_dict()["class_name"] == "CastorEmbedding"
    nodes = [core.schema.TextNode(text=text) for text in TEXTS]
    index = core.VectorStoreIndex(nodes, embed_model=embedding)
    found = index.as_retriever(similarity_top_k=1).retrieve("a rodent at work")
    assert found[0].text == TEXTS[0]


def test_haystack(server: Server, client: castor.Client) -> None:
    haystack = pytest.importorskip("haystack")
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from castor.integrations.haystack import CastorDocumentEmbedder, CastorTextEmbedder

    embedder = CastorDocumentEmbedder(server.target, "prompted")
    given = [haystack.Document(content=text) for text in TEXTS]
    documents = embedder.run(documents=given)["documents"]
    assert np.allclose([each.embedding for each in documents], rows(client)[1])
    assert given[0].embedding is None
    fields = {"meta_fields_to_embed": ["title", "none"], "prefix": "<", "suffix": ">"}
    embedder = CastorDocumentEmbedder(server.target, "prompted", **fields)
    [titled] = embedder.run(documents=[haystack.Document(content="c", meta={"title": "t"})])[
        "documents"
    ]
    want = client.encode_document("<t\nc>", model="prompted")
    assert np.allclose(titled.embedding, want)
    affixed = CastorTextEmbedder(server.target, "prompted", prefix="<", suffix=">")
    want = client.encode_query("<a>", model="prompted")
    assert np.allclose(affixed.run(text="a")["embedding"], want)
    store = InMemoryDocumentStore()
    store.write_documents(documents)
    pipeline = haystack.Pipeline()
    pipeline.add_component("embedder", CastorTextEmbedder(server.target, "prompted"))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    trusted = ["castor.integrations.haystack"]
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=trusted)
    assert again.get_component("embedder").target == server.target
    found = pipeline.run({"embedder": {"text": "a rodent at work"}})
    assert found["retriever"]["documents"][0].content == TEXTS[0]


def test_mteb(server: Server, client: castor.Client) -> None:
    mteb = pytest.importorskip("mteb")
    from mteb.types import PromptType

    from castor.integrations.mteb import CastorEncoder

    encoder = CastorEncoder(server.target, "prompted", kernel=castor.Vanilla())
    assert isinstance(encoder, mteb.models.EncoderProtocol)
    query, _ = rows(client)
    batches = [{"text": TEXTS[:1]}, {"text": TEXTS[1:]}]
    got = encoder.encode(batches, prompt_type=PromptType.document, task_metadata=None)
    assert np.allclose(got, client.encode(TEXTS, model="prompted", prompt_name=""), atol=2e-5)
    got = encoder.encode([{"text": TEXTS[:1]}], prompt_type=PromptType.query, task_metadata=None)
    assert np.allclose(got[0], query, atol=2e-5)
    assert encoder.similarity(got, got).shape == (1, 1)
