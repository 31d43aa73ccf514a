"""castor.SentenceTransformer against the class that it stands for, on the same weights."""

from __future__ import annotations

import inspect
import json
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
    with pytest.raises(ValueError, match="similarity_fn_name 'maxsim'"):
        castor.SentenceTransformer(similarity_fn_name="maxsim")


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_of_every_kind(pair: tuple[Any, Any], name: str) -> None:
    theirs, ours = pair
    random = torch.Generator().manual_seed(1)
    a, b = (torch.randn(rows, 8, generator=random) for rows in (3, 4))
    a.requires_grad_()
    for model in (theirs, ours):
        model.similarity_fn_name = name
    for one, other in [(a, b), (a.bfloat16(), b.half()), ([*b], b), (b[0], b)]:
        want, got = (model.similarity(one, other) for model in pair)
        assert got.requires_grad == want.requires_grad
        assert_same(want.detach(), got.detach())
    assert_same(theirs.similarity_pairwise(b, b[:1]), ours.similarity_pairwise(b, b[:1]))
    arrays = ours.similarity(b.numpy(), b.numpy())
    assert isinstance(arrays, np.ndarray)
    assert abs(arrays - theirs.similarity(b, b).numpy()).max() < BOUND
    for model in pair:
        model.similarity_fn_name = None


def test_a_models_own_similarity(tmp_path: Path) -> None:
    for path in (GOLDEN / "directories/bert-embed").iterdir():
        if path.name != "config_sentence_transformers.json":
            (tmp_path / path.name).symlink_to(path)
    config = {"similarity_fn_name": "euclidean"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(config))
    running = Server(f"--model=m={tmp_path}")
    with castor.Client(running.target) as client:
        assert client.model().similarity_fn_name == "euclidean"
        ours = castor.SentenceTransformer(client)
        assert ours.similarity_fn_name == "euclidean"
        rows = ours.encode(["a b", "the cat"])
        want = -np.linalg.norm(rows[0] - rows[1])
        assert abs(ours.similarity(rows[0], rows[1])[0, 0] - want) < 1e-6
        assert (
            castor.SentenceTransformer(client, similarity_fn_name="dot").similarity_fn_name == "dot"
        )
    running.stop()


def test_what_programs_call(pair: tuple[Any, Any]) -> None:
    theirs, ours = pair
    few = TEXTS[:3]
    assert_same(theirs.encode(sentences=few), ours.encode(sentences=few))
    options = {"prompt": "Find: ", "prompt_name": "query"}
    assert_same(theirs.encode(few, **options), ours.encode(few, **options))
    for given in ([few[0]], few[0]):
        want, got = (model.encode(given, output_value=None) for model in pair)
        for one, other in zip(
            *([each] if isinstance(each, dict) else each for each in (want, got))
        ):
            assert {*other} == {*one} - {"modality", "prompt_length"}
            for name in other:
                assert_same(one[name], other[name])
    for name, rows in ours.tokenize(few).items():
        assert_same(theirs.tokenize(few)[name], rows)
    text = "a beaver's dam"
    ids = theirs.tokenizer.encode(text)
    assert ours.tokenizer.encode(text) == ours.tokenizer(text)["input_ids"] == ids
    assert ours.tokenizer.tokenize(text) == theirs.tokenizer.tokenize(text)
    assert ours.tokenizer.decode(ids, skip_special_tokens=True) == text.replace("'", " ' ")
    assert ours.device == torch.device("cpu") and ours.to("cuda").eval() is ours
    with theirs.truncate_embeddings(9), ours.truncate_sentence_embeddings(9):
        assert_same(theirs.encode(few), ours.encode(few))
        assert ours.get_embedding_dimension() == 9
    before = theirs.max_seq_length
    assert ours.get_max_seq_length() == before
    theirs.max_seq_length = ours.max_seq_length = 8
    assert_same(theirs.encode(few), ours.encode(few))
    theirs.max_seq_length, ours.max_seq_length = before, None
    for mine, other in [
        (castor.SentenceTransformer, peer.SentenceTransformer),
        (castor.CrossEncoder, peer.CrossEncoder),
        (castor.SparseEncoder, peer.SparseEncoder),
    ]:
        for name in {"encode", "encode_query", "predict"} & {*dir(mine)}:
            want, got = (
                inspect.signature(getattr(each, name)).parameters for each in (other, mine)
            )
            shared = [each for each in got if each not in ("options", "args")]
            assert shared == [*want][: len(shared)], name


def test_what_it_refuses(pair: tuple[Any, Any]) -> None:
    _, ours = pair
    with pytest.warns(UserWarning, match="device is ignored"):
        ours.encode("a", device="cuda")
    with pytest.raises(TypeError, match="batchsize"):
        ours.encode("a", batchsize=3)
    with pytest.raises(ValueError, match="output_value"):
        ours.encode("a", output_value="words")
    with pytest.raises(TypeError, match="dict"):
        ours.encode({"text": "a"})
    with pytest.raises(ValueError):
        ours.encode("a", prompt_name="none")
    assert ours.encode([]).shape == (0, 384)
    assert ours.encode([], output_value="token_embeddings") == []


@pytest.fixture(scope="module")
def others() -> Iterator[castor.Client]:
    """Small models of other shapes: dense layers, a length to cut rows to, pairs, SPLADE."""
    names = ["bert-embed", "bert-embed_more", "roberta-embed", "bert-cross", "bert-sparse"]
    names += ["deberta-sequences", "distilbert-router"]
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


def test_cross_encoders_by_their_class(others: castor.Client) -> None:
    pairs = [("a b", "c d"), ("the cat", "sat")]
    for name in ("bert-cross", "deberta-sequences"):
        theirs = peer.CrossEncoder(str(GOLDEN / "directories" / name), device="cpu")
        ours = castor.CrossEncoder(others, name)
        assert ours.num_labels == theirs.num_labels
        for options in (
            {},
            {"activation_fn": torch.nn.Tanh()},
            {"apply_softmax": True},
            {"convert_to_tensor": True},
            {"convert_to_numpy": False},
        ):
            for given in (pairs, [list(each) for each in pairs], pairs[0], list(pairs[0]), []):
                want, got = (each.predict(given, **options) for each in (theirs, ours))
                if len(given):
                    assert_same(want, got)
        if theirs.num_labels == 1:
            want, got = (each.rank("a b", TEXTS[:9], 4, True) for each in (theirs, ours))
            assert [(each["corpus_id"], each["text"]) for each in want] == [
                (each["corpus_id"], each["text"]) for each in got
            ]
        else:
            with pytest.raises(ValueError, match="one label"):
                ours.rank("a", ["b"])


def test_sparse_encoders_by_their_class(others: castor.Client) -> None:
    theirs = peer.SparseEncoder(str(GOLDEN / "directories/bert-sparse"), device="cpu")
    ours = castor.SparseEncoder(others, "bert-sparse")
    few = TEXTS[:9]
    for options in ({}, {"max_active_dims": 3}, {"convert_to_sparse_tensor": False}):
        for given in (few, few[0]):
            want, got = (each.encode(given, **options) for each in (theirs, ours))
            assert want.layout == got.layout
            assert_same(want.to_dense(), got.to_dense())
    a, b = theirs.encode_query(few), ours.encode_query(few)
    assert abs(theirs.similarity(a, a) - ours.similarity(b, b)).max() < 1e-3
    assert ours.similarity_fn_name == theirs.similarity_fn_name == "dot"
    assert ours.get_embedding_dimension() == theirs.get_embedding_dimension()


def test_routers(others: castor.Client) -> None:
    theirs = peer.SparseEncoder(str(GOLDEN / "directories/distilbert-router"), device="cpu")
    ours = castor.SparseEncoder(others, "distilbert-router")
    few = [text for text in TEXTS[:9] if text.strip()]
    for options in ({}, {"prompt": "the mill "}, {"prompt": ""}):
        for name in ("encode", "encode_query", "encode_document"):
            want, got = (getattr(each, name)(few, **options) for each in (theirs, ours))
            assert_same(want.to_dense(), got.to_dense())
        for task in ("query", "document"):
            want, got = (each.encode(few, task=task, **options) for each in (theirs, ours))
            assert_same(want.to_dense(), got.to_dense())


def test_sparse_encoders(others: castor.Client) -> None:
    theirs = peer.SparseEncoder(str(GOLDEN / "directories/bert-sparse"), device="cpu")
    want = theirs.encode(TEXTS).to_dense().numpy()
    got = others.encode_sparse(TEXTS, model="bert-sparse")
    rows = np.zeros_like(want)
    rows[np.repeat(np.arange(len(TEXTS)), np.diff(got.indptr)), got.indices] = got.values
    assert abs(rows - want).max() <= BOUND
