"""castor.SentenceTransformer against the class that it stands for, on the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, Server

import castor

peer = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")

BOUND = 2e-5
TEXTS = (ROOT / "tests/bench/encoder/encoder_texts.txt").read_text().splitlines()
TEXTS = (TEXTS * (500 // len(TEXTS) + 1))[:498] + ["", "wörter — 水 🦫 " * 150]


@pytest.fixture(scope="module")
def pair(server: Server, prompted: Path) -> Iterator[tuple[Any, Any]]:
    with castor.Client(server.target) as client:
        yield (
            peer.SentenceTransformer(str(prompted), device="cpu"),
            castor.SentenceTransformer(client, "prompted"),
        )


def assert_same(want: Any, got: Any) -> None:
    assert type(want) is type(got)
    if isinstance(want, list):
        assert len(want) == len(got)
        for a, b in zip(want, got):
            assert_same(a, b)
        return
    assert want.dtype == got.dtype and want.shape == got.shape
    assert abs(np.asarray(want) - np.asarray(got)).max() <= BOUND


CASES: list[dict[str, Any]] = [
    {},
    {"prompt_name": "query"},
    {"prompt": "Find: "},
    {"prompt": ""},
    {"normalize_embeddings": True},
    {"truncate_dim": 100},
    {"truncate_dim": 100, "normalize_embeddings": True},
    {"convert_to_tensor": True},
    {"convert_to_numpy": False},
    {"output_value": "token_embeddings"},
    {"batch_size": 7, "show_progress_bar": True},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_every_argument(pair: tuple[Any, Any], options: dict[str, Any]) -> None:
    theirs, ours = pair
    assert_same(theirs.encode(TEXTS, **options), ours.encode(TEXTS, **options))
    assert_same(theirs.encode(TEXTS[3], **options), ours.encode(TEXTS[3], **options))


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("options", [{}, {"truncate_dim": 100}], ids=str)
def test_precisions(pair: tuple[Any, Any], precision: str, options: dict[str, Any]) -> None:
    """A value within the bound of a step's edge may fall to the other side of it."""
    want, got = (model.encode(TEXTS, precision=precision, **options) for model in pair)
    assert want.dtype == got.dtype and want.shape == got.shape
    if precision.endswith("int8"):
        differ = abs(want.astype(int) - got.astype(int))
        assert differ.max() <= 1
    else:
        differ = np.unpackbits(want.view(np.uint8) ^ got.view(np.uint8))
    assert differ.mean() < 1e-3


@pytest.mark.parametrize("method", ["encode_query", "encode_document"])
@pytest.mark.parametrize("options", [{}, {"prompt_name": "other"}, {"prompt": "x "}], ids=str)
def test_queries_and_documents(pair: tuple[Any, Any], method: str, options: dict[str, Any]) -> None:
    theirs, ours = (getattr(model, method) for model in pair)
    assert_same(theirs(TEXTS[:50], **options), ours(TEXTS[:50], **options))


def test_attributes_and_similarities(pair: tuple[Any, Any]) -> None:
    theirs, ours = pair
    for name in ("prompts", "default_prompt_name", "similarity_fn_name"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.get_embedding_dimension() == theirs.get_embedding_dimension() == 384
    assert ours.get_sentence_embedding_dimension() == 384
    rows = ours.encode(TEXTS[:9], convert_to_tensor=True)
    assert_same(theirs.similarity(rows, rows[:4]), ours.similarity(rows, rows[:4]))
    assert_same(theirs.similarity_pairwise(rows, rows), ours.similarity_pairwise(rows, rows))
    assert isinstance(ours.similarity(rows.numpy(), rows.numpy()), np.ndarray)
    dot = castor.SentenceTransformer(ours.client, "prompted", similarity_fn_name="dot")
    assert_same(rows @ rows.T, dot.similarity(rows, rows))
    with pytest.raises(ValueError, match="similarity_fn_name 'euclidean'"):
        castor.SentenceTransformer(similarity_fn_name="euclidean")


def test_what_it_refuses(pair: tuple[Any, Any]) -> None:
    _, ours = pair
    with pytest.warns(UserWarning, match="device is ignored"):
        ours.encode("a", device="cuda")
    with pytest.raises(TypeError, match="batchsize"):
        ours.encode("a", batchsize=3)
    with pytest.raises(ValueError, match="output_value"):
        ours.encode("a", output_value=None)
    with pytest.raises(ValueError):
        ours.encode("a", prompt_name="none")
    assert ours.encode([]).shape == (0, 384)
    assert ours.encode([], output_value="token_embeddings") == []


@pytest.fixture(scope="module")
def others() -> Iterator[castor.Client]:
    """Small models of other shapes: dense layers, a length to cut rows to, pairs, SPLADE."""
    names = ["bert-embed", "bert-embed_more", "roberta-embed", "bert-cross", "bert-sparse"]
    running = Server(*(f"--model={name}={GOLDEN / 'directories' / name}" for name in names))
    with castor.Client(running.target) as client:
        yield client
    running.stop()


@pytest.mark.parametrize("name", ["bert-embed", "bert-embed_more", "roberta-embed"])
def test_other_models(others: castor.Client, name: str) -> None:
    theirs = peer.SentenceTransformer(str(GOLDEN / "directories" / name), device="cpu")
    ours = castor.SentenceTransformer(others, name)
    assert ours.get_embedding_dimension() == theirs.get_embedding_dimension()
    for options in CASES:
        if "prompt_name" not in options:
            assert_same(theirs.encode(TEXTS, **options), ours.encode(TEXTS, **options))
    options = {"truncate_dim": theirs.get_embedding_dimension() - 1}
    for more in ({}, {"normalize_embeddings": True}, {"precision": "ubinary"}):
        got = ours.encode(TEXTS, **options, **more)
        assert_same(theirs.encode(TEXTS, **options, **more), got)


def test_cross_encoders(others: castor.Client) -> None:
    theirs = peer.CrossEncoder(str(GOLDEN / "directories/bert-cross"), device="cpu")
    pairs = list(zip(TEXTS, reversed(TEXTS)))
    assert_same(theirs.predict(pairs), others.predict(pairs, model="bert-cross"))
    want = theirs.rank(TEXTS[0], TEXTS[:100], top_k=10, return_documents=True)
    got = others.rank(TEXTS[0], TEXTS[:100], top_k=10, return_documents=True, model="bert-cross")
    assert [each.pop("corpus_id") for each in want] == [each.pop("corpus_id") for each in got]
    assert [each["text"] for each in want] == [each["text"] for each in got]
    assert theirs.rank("a", []) == others.rank("a", [], model="bert-cross")


def test_sparse_encoders(others: castor.Client) -> None:
    theirs = peer.SparseEncoder(str(GOLDEN / "directories/bert-sparse"), device="cpu")
    want = theirs.encode(TEXTS).to_dense().numpy()
    got = others.encode_sparse(TEXTS, model="bert-sparse")
    rows = np.zeros_like(want)
    rows[np.repeat(np.arange(len(TEXTS)), np.diff(got.indptr)), got.indices] = got.values
    assert abs(rows - want).max() <= BOUND
