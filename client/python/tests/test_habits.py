"""What programs do with a client, and what they may expect of it."""

from __future__ import annotations

import asyncio
import collections
import copy
import importlib.util
import inspect
import os
import pickle
import signal
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, MINILM, Server

import castor

HEADS = GOLDEN / "heads"
SMALL = GOLDEN / "directories/bert-embed"


def test_signatures_say_everything() -> None:
    for kind in (castor.Client, castor.AsyncClient):
        assert [*inspect.signature(kind.encode).parameters][:2] == ["self", "inputs"]
        with kind("127.0.0.1:1") if kind is castor.Client else castor.Client() as client:
            names = [*inspect.signature(client.encode).parameters]
            assert names == ["inputs", "output_value", "convert_to_tensor", "options"]
            assert [*inspect.signature(client.rank).parameters][:2] == ["query", "documents"]


def test_clients_and_errors_are_copied(server: Server) -> None:
    with castor.Client(server.target, timeout=7, tenant="t", model="minilm") as client:
        want = client.encode("a")
        model = castor.SentenceTransformer(client)
        for made in (pickle.loads(pickle.dumps(client)), copy.deepcopy(client), copy.copy(client)):
            assert (made.target, made.timeout) == (client.target, 7)
            assert made._tenant == client._tenant
            assert np.array_equal(made.encode("a"), want)
            made.close()
        assert np.array_equal(pickle.loads(pickle.dumps(model)).encode("a"), want)
        with pytest.raises(castor.InvalidFieldError) as caught:
            client.encode("a", truncate_dim=999)
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is castor.InvalidFieldError and vars(error) == vars(caught.value)
    files = castor.TLS(ca_file="ca.pem")
    client = castor.AsyncClient("castor:1", tls=files, token_file="token", timeout=3)
    made = pickle.loads(pickle.dumps(client))
    assert made._tls == files and made._token_file._paths == ("token",)
    client = castor.Client(token="secret")
    assert copy.deepcopy(client)._metadata() == client._metadata()
    with pytest.raises(TypeError, match="token_file"):
        pickle.dumps(client)


class Table:
    """What a table of pandas, polars or pyarrow looks like to one who goes through it."""

    shape = (3, 2)

    def __iter__(self) -> Iterator[str]:
        return iter(["column", "other"])


MASKED = np.ma.masked_array(["a", "b"], [False, True])


@pytest.mark.parametrize(
    "given",
    [{"a": 1}, collections.UserDict(a=1), Table(), MASKED],
    ids=["dict", "U", "table", "ma"],
)
def test_names_and_keys_are_no_texts(client: castor.Client, given: Any) -> None:
    model = castor.SentenceTransformer(client, "minilm")
    for call in (
        lambda: client.encode(given, model="minilm"),
        lambda: client.encode_tokens(given, model="minilm"),
        lambda: client.encode_document(given, model="minilm"),
        lambda: client.tokenize(given, model="minilm"),
        lambda: client.predict(given, model="labels"),
        lambda: client.rank("a", given, model="cross"),
        lambda: list(client.encode_stream(given, model="minilm")),
        lambda: model.encode(given),
    ):
        if given is MASKED and "stream" in inspect.getsource(call):
            continue
        with pytest.raises(TypeError, match="several|masked"):
            call()


def test_masks_are_not_forgotten(client: castor.Client) -> None:
    masked = np.ma.masked_array(np.ones((2, 1, 4), np.float32), np.zeros((2, 1, 4)))
    with pytest.raises(TypeError, match="query is a masked array"):
        client.attend(masked, masked, masked)
    with pytest.raises(TypeError, match="embeddings is a masked array"):
        castor.SentenceTransformer(client, "minilm", similarity_fn_name="dot").similarity(
            masked[0], masked[0]
        )


def test_a_columns_texts(client: castor.Client) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": ["a", "b"], "other": ["c", "d"]})
    want = client.encode(["a", "b"], model="minilm")
    assert np.array_equal(client.encode(table["text"], model="minilm"), want)
    with pytest.raises(TypeError, match="choose a column"):
        client.encode(table, model="minilm")


def test_what_is_cut_is_said(client: castor.Client) -> None:
    long = ["short", "word " * 600]
    calls = [
        lambda **o: client.encode(long, model="minilm", **o),
        lambda **o: list(client.encode_stream(long, model="minilm", **o)),
        lambda **o: client.rank("a", long, model="cross", **o),
        lambda **o: client.predict([("a", each) for each in long], model="cross", **o),
        lambda **o: castor.SentenceTransformer(client, "minilm").encode(long, **o),
    ]
    for call in calls:
        with pytest.warns(castor.TruncationWarning, match="input 1 is longer") as caught:
            call()
        assert [each.filename for each in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(truncate=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.encode_with_report(long, model="minilm").truncated.tolist() == [False, True]
        model = castor.SentenceTransformer(client, "minilm")
        model.max_seq_length = 8
        assert abs(model.encode("word " * 600) - model.encode("word " * 6)).max() < 1e-6


def test_one_pair_in_a_list(client: castor.Client) -> None:
    one = client.predict(("a b", "c d"), model="cross")
    assert np.ndim(one) == 0
    for given in (["a b", "c d"], np.array(["a b", "c d"])):
        assert client.predict(given, model="cross") == one
    for given in ([["a b", "c d"]], [("a b", "c d")], np.array([["a b", "c d"]])):
        assert client.predict(given, model="cross").tolist() == [one]
    for given in ("a b", ["a b"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="cross scores pairs"):
            client.predict(given, model="cross")
    assert client.predict(["a b", "c d"], model="labels").shape == (2, 3)


def test_activations(client: castor.Client) -> None:
    texts = ["a b", "c d", "e"]
    logits = client.predict(texts, model="labels", logits=True)
    powers = np.exp(logits)
    softmax = powers / powers.sum(-1, keepdims=True)
    for options in ({}, {"apply_softmax": True}):
        assert abs(client.predict(texts, model="labels", **options) - softmax).max() < 1e-6
    halved = client.predict(texts, model="labels", activation_fn=lambda rows: rows / 2)
    assert abs(halved - logits / 2).max() < 1e-6
    pairs = [("a", "b"), ("c", "d")]
    want = client.predict(pairs, model="cross")
    assert np.array_equal(client.predict(pairs, model="cross", apply_softmax=True), want)


@pytest.fixture(scope="module")
def tokens() -> Iterator[castor.Client]:
    names = ["bert_tokens", "distilbert_tokens"]
    running = Server(*(f"--model={name}={HEADS / name}" for name in names))
    with castor.Client(running.target, model="bert_tokens") as client:
        yield client
    running.stop()


def test_a_token_classifiers_rows_are_its_texts(tokens: castor.Client) -> None:
    texts = ["the cat sat", "", "the mill by the river"]
    got = tokens.predict(texts)
    lengths = [len(each.ids) for each in tokens.tokenize(texts)]
    assert [each.shape for each in got] == [(length, 5) for length in lengths]
    assert abs(tokens.predict(texts[0]) - got[0]).max() < 1e-6
    many = tokens.predict(texts * 200)
    assert len(many) == 600 and abs(many[599] - got[2]).max() < 1e-5


def test_entities_have_offsets(tokens: castor.Client) -> None:
    transformers = pytest.importorskip("transformers")
    text = "the cat sat on the mat by the river of the old mill"
    for name in ("bert_tokens", "distilbert_tokens"):
        pipeline = transformers.pipeline(
            "token-classification", model=str(HEADS / name), device="cpu"
        )
        for strategy in ("none", "simple"):
            keys = {"aggregation_strategy": strategy, "ignore_labels": []}
            want = transformers.TokenClassificationPipeline.__call__(pipeline, text, **keys)
            got = tokens.entities(text, model=name, **keys)
            assert len(got) == len(want) > 0
            for mine, other in zip(got, want):
                assert mine["word"] == text[mine["start"] : mine["end"]]
                assert abs(mine.pop("score") - other.pop("score")) < 1e-4
                del mine["word"], other["word"]
                assert mine == other
        assert len(tokens.entities([text, "a"] * 200, model=name)) == 400
    with pytest.raises(ValueError, match="not none or simple"):
        tokens.entities("a", aggregation_strategy="max")


def test_a_default_model(server: Server) -> None:
    with castor.Client(server.target, model="minilm") as client:
        assert client.encode("a").shape == (384,) and client.model().name == "minilm"
        assert next(client.encode_stream(["a"])).shape == (384,)
        assert client.encode_query("a").shape == (384,) and client.encode([]).shape == (0, 384)
        assert client.encode_sparse("the mill", model="splade").width > 0
        assert client.model("cross").name == "cross"


def test_sparse_answers_fit(client: castor.Client) -> None:
    one, two = (client.encode_sparse([text], model="splade") for text in ("a b", "the cat sat on"))
    width = client.model("splade").vocabulary_size
    assert one.shape == two.shape == (1, width)


def test_an_unknown_model_is_one_error(client: castor.Client) -> None:
    for name in ("encode", "encode_query", "encode_document", "encode_sparse", "tokenize"):
        with pytest.raises(castor.ModelNotFoundError):
            getattr(client, name)(["a"], model="missing")
    with pytest.raises(castor.ModelNotFoundError):
        client.encode([], model="missing")
    with pytest.raises(castor.ModelNotFoundError):
        client.model("missing")


@pytest.mark.parametrize("target", ["http://a:1", "https://a:1/x", "grpc://127.0.0.1:50051"])
def test_a_url_is_no_target(target: str) -> None:
    with pytest.raises(ValueError, match="is a URL: use '"):
        castor.Client(target)


def test_a_hidden_listener_is_told(tmp_path: Path) -> None:
    """A server with TLS at 127.0.0.1, where gRPC speaks of [::1] alone."""
    spec = importlib.util.find_spec("authority")
    assert spec
    from authority import Authority

    certificate, key = Authority(str(tmp_path)).issue("server")
    secured = ["--tls-certificate", certificate, "--tls-key", key, f"--model=minilm={MINILM}"]
    server = Server(*secured)
    for target in (f"localhost:{server.port}", server.target):
        with castor.Client(target, timeout=1) as client:
            with pytest.raises(castor.UnavailableError, match="use TLS"):
                client.wait_ready()
    server.stop()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with castor.Client(f"localhost:{free.getsockname()[1]}", timeout=0.5) as client:
            with pytest.raises(castor.UnavailableError, match="connection refused at localhost"):
                client.encode("a")


def test_a_server_that_hangs() -> None:
    server = Server(f"--model=small={SMALL}")

    async def later() -> None:
        async with castor.AsyncClient(server.target, timeout=1) as client:
            for texts in (["a"], ["a"] * 600):
                with pytest.raises(castor.DeadlineExceededError):
                    await client.encode(texts)
            with pytest.raises(castor.DeadlineExceededError):
                async for _ in client.encode_stream(["a"]):
                    pass

    with castor.Client(server.target, timeout=1) as client:
        client.wait_ready(10)
        server.process.send_signal(signal.SIGSTOP)
        # The kernel stops one thread after another; the last may still answer a call.
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
        begin = time.monotonic()
        for texts in (["a"], ["a"] * 600):
            with pytest.raises(castor.DeadlineExceededError):
                client.encode(texts)
        with pytest.raises(castor.DeadlineExceededError):
            next(client.encode_stream(["a"]))
        asyncio.run(later())
        assert time.monotonic() - begin < 6 * 1.5 + 1
    server.process.send_signal(signal.SIGCONT)
    server.stop()


def test_a_restart_costs_no_call() -> None:
    first = Server(f"--model=small={SMALL}")
    with castor.Client(first.target, timeout=60) as client:
        want = client.encode(["a"] * 300)
        stream = client.encode_stream(["a"] * 3000, in_flight=2)
        begun = [next(stream).copy()]
        first.stop(signal.SIGKILL)
        started: list[Server] = []
        import threading

        def start() -> None:
            time.sleep(2.5)  # longer than a few quick attempts take
            started.append(Server(f"--model=small={SMALL}", port=first.port))

        thread = threading.Thread(target=start)
        thread.start()
        assert abs(client.encode(["a"] * 300) - want).max() < 2e-5
        assert len([*begun, *stream]) == 3000
        thread.join()
        assert abs(client.encode("a") - want[0]).max() < 2e-5
    started[0].stop()


def test_pauses_lose_and_repeat_nothing() -> None:
    server = Server(f"--model=small={SMALL}", "--transfer-timeout", "1s")
    texts = [f"line {n}" for n in range(1500)]

    def slow() -> Iterator[str]:
        for number, text in enumerate(texts):
            if number in (700, 1200):
                time.sleep(2.5)
            yield text

    async def paused() -> list[Any]:
        async with castor.AsyncClient(server.target, timeout=60) as client:
            got = []
            async for row in client.encode_stream(texts, in_flight=2):
                got.append(row.copy())
                if len(got) % 600 == 1:
                    await asyncio.sleep(2.5)
            return got

    with castor.Client(server.target, timeout=60) as client:
        want = client.encode(texts)
        assert abs(np.array([*client.encode_stream(slow())]) - want).max() < 2e-5
        got = []
        for row in client.encode_stream(texts, in_flight=2):
            got.append(row.copy())
            if len(got) % 600 == 1:
                time.sleep(2.5)
        assert abs(np.array(got) - want).max() < 2e-5
        assert abs(np.array(asyncio.run(paused())) - want).max() < 2e-5
    server.stop()


def test_a_small_queue_and_a_large_window(server: Server) -> None:
    small = Server(f"--model=small={SMALL}", "--max-queued-requests", "4")
    texts = [f"text {n}" for n in range(4000)]

    async def run() -> list[Any]:
        async with castor.AsyncClient(small.target, timeout=60) as client:
            return [row async for row in client.encode_stream(texts, in_flight=200)]

    with castor.Client(small.target) as client:
        assert len(asyncio.run(run())) == len([*client.encode_stream(texts, in_flight=200)]) == 4000
    small.stop()


def test_a_new_models_prompts_are_used(prompted: Path) -> None:
    one = Server(f"--model=m={MINILM}")
    with castor.Client(one.target) as client:
        model = castor.SentenceTransformer(client)
        plain = client.encode("x")
        for call in (client.encode_query, client.encode_document, model.encode_query):
            assert abs(call("x") - plain).max() < 1e-6
        assert model.default_prompt_name is None
        one.stop()
        two = Server(f"--model=m={prompted}", port=one.port)
        for call, text in [
            (client.encode_query, "query: x"),
            (client.encode_document, "passage: x"),
            (model.encode_query, "query: x"),
        ]:
            assert abs(call("x") - client.encode(text, prompt_name="")).max() < 1e-6
        assert model.default_prompt_name == "other" and model.prompts["passage"] == "passage: "
    two.stop()


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
