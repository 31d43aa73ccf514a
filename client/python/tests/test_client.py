"""The blocking client against a server."""

from __future__ import annotations

import gc
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, Server

import castor

TEXTS = ["a beaver builds a dam", "a rodent at work", "interest rates rose", "", "dam " * 200]


def test_rows_are_in_order_and_of_the_model(client: castor.Client) -> None:
    rows = client.encode(TEXTS, model="minilm")
    assert rows.shape == (5, 384) and rows.dtype == np.float32 and rows.flags.writeable
    for text, row in zip(TEXTS, rows):
        assert abs(client.encode(text, model="minilm") - row).max() < 2e-5
    for given in (np.array(TEXTS), (text for text in TEXTS), [np.str_(text) for text in TEXTS]):
        assert np.array_equal(client.encode(given, model="minilm"), rows)
    assert client.encode([], model="minilm").shape == (0, 384)
    assert client.encode([], model="minilm", precision="ubinary", truncate_dim=64).shape == (0, 8)
    report = client.encode_with_report(TEXTS, model="minilm", request_id="mine")
    assert report.token_counts[0] == 7 and not report.truncated.any()
    assert report.reports[0].model == "minilm" and report.reports[0].request_id == "mine"
    assert report.reports[0].kernel == castor.Vanilla() and report.reports[0].timing.total_us > 0


def test_many_texts_are_several_requests(client: castor.Client, capsys) -> None:
    texts = [f"text number {i}" for i in range(400)]
    rows = client.encode(texts, model="minilm", show_progress_bar=True)
    assert "400 of 400 texts" in capsys.readouterr().err
    streamed = list(client.encode_stream(iter(texts), model="minilm"))
    assert np.array_equal(rows, streamed)
    for precision in ("int8", "binary"):
        quantized = client.encode(texts, model="minilm", precision=precision)
        assert np.array_equal(quantized, castor.quantize(rows, precision))
    ranges = np.stack([rows.min(0), rows.max(0)])
    by_server = client.encode(texts, model="minilm", precision="uint8", ranges=ranges)
    assert abs(by_server.astype(int) - castor.quantize(rows, "uint8", ranges)).max() <= 1


def test_prompts(client: castor.Client) -> None:
    def plain(text: str) -> np.ndarray:
        return client.encode(text, model="prompted", prompt_name="")

    options = {"model": "prompted"}
    for got, text in [
        (client.encode("x", **options), "Something else. x"),
        (client.encode_query("x", **options), "query: x"),
        (client.encode_document("x", **options), "passage: x"),
        (client.encode_query("x", prompt="mine: ", **options), "mine: x"),
        (client.encode_document("x", prompt_name="other", **options), "Something else. x"),
    ]:
        assert abs(got - plain(text)).max() < 1e-6
    assert client.model("prompted").similarity_fn_name == "cosine"
    assert client.model("cross").similarity_fn_name == ""
    with pytest.raises(castor.InvalidFieldError) as caught:
        client.encode("x", model="prompted", prompt_name="none")
    assert caught.value.field == "prompt_name"


def test_tasks(client: castor.Client) -> None:
    cases = json.loads((GOLDEN / "adapters/jina_v3/expected.json").read_text())["cases"]
    for case in cases:
        got = client.encode(case["text"], model="tasks", task=case["task"] or None)
        assert abs(got - case["pooled"][0]).max() < 2e-5
    # sentence-transformers leaves the task's prompt to its caller.
    model = castor.SentenceTransformer(client, "tasks")
    for case in cases:
        if case["task"]:
            options = {"task": case["task"], "prompt_name": case["task"]}
            assert abs(model.encode(case["text"], **options) - case["pooled"][0]).max() < 2e-5
    alone = model.encode("the mill", task="retrieval.query")
    options = {"model": "tasks", "task": "retrieval.query", "prompt_name": ""}
    assert (alone == client.encode("the mill", **options)).all()
    with pytest.raises(castor.CastorError) as caught:
        client.encode("x", model="tasks", task="nonsense")
    assert caught.value.field == "task"


def test_tokens_and_spans(client: castor.Client) -> None:
    options = {"model": "minilm", "normalize_embeddings": False}
    tokens = client.encode_tokens(["a beaver", "a dam stands"], **options)
    assert [each.shape for each in tokens] == [(4, 384), (5, 384)]
    spans = client.encode_spans("a beaver. \n", [(2, 8), (9, 11)], **options)
    assert spans.tokens[0] == (2, 3) and spans.tokens[1][0] == spans.tokens[1][1]
    whole = client.encode_tokens("a beaver. \n", **options)[0]
    assert abs(spans.rows[0] - whole[2]).max() < 1e-5 and not spans.rows[1].any()
    with pytest.raises(castor.InvalidFieldError, match="end"):
        client.encode_spans("a beaver", [(0, 99)], **options)


def is_alone(case: dict) -> bool:
    return case["text"] is not None and case["pair"] is None


def expected(name: str) -> dict:
    return json.loads((GOLDEN / "heads" / name / "expected.json").read_text())


def test_classifies_by_labels_of_the_call(client: castor.Client) -> None:
    """Against transformers 5.24's pipeline of zero-shot-classification."""
    texts, labels = ["the old mill", "answers"], ["river", "letter", "sea"]
    by: dict[str, dict] = {"model": {"model": "inference"}}
    by["each"] = {**by["model"], "multi_label": True}
    by["template"] = {**by["model"], "hypothesis_template": "It is about {}!"}
    want = {
        "model": [("sea river letter", [0.3505136, 0.3343455, 0.3151409]),
                  ("sea river letter", [0.3458322, 0.3314055, 0.3227623])],
        "each": [("sea river letter", [0.8786187, 0.8722129, 0.8642341]),
                 ("sea river letter", [0.8826042, 0.8759745, 0.8726626])],
        "template": [("letter sea river", [0.3582058, 0.3227631, 0.319031]),
                     ("letter river sea", [0.378687, 0.3138126, 0.3075004])],
    }  # fmt: skip
    for name, options in by.items():
        got = client.classify(texts, labels, **options)
        assert [each["sequence"] for each in got] == texts
        assert [" ".join(each["labels"]) for each in got] == [order for order, _ in want[name]]
        for each, (_, scores) in zip(got, want[name]):
            assert abs(np.array(each["scores"]) - scores).max() < 2e-5
    one = client.classify(texts[0], ["river"], model="inference")
    assert one["labels"] == ["river"] and abs(one["scores"][0] - 0.8722129) < 2e-5
    assert client.classify([], labels, model="inference") == []
    for wrong in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="each once"):
            client.classify(texts, wrong, model="inference")
    with pytest.raises(ValueError, match="entailment"):
        client.classify(texts, labels, model="labels")


def test_scores_and_ranks(client: castor.Client) -> None:
    cases = [each for each in expected("cross_encoder")["cases"] if each["pair"] is not None]
    pairs = [(each["text"], each["pair"]) for each in cases]
    scores = client.predict(pairs, model="cross")
    logits = client.predict(pairs, model="cross", logits=True)
    assert scores.shape == logits.shape == (len(pairs),)
    assert abs(logits - np.ravel([each["LOGITS"] for each in cases])).max() < 1e-4
    assert abs(client.predict(pairs[0], model="cross") - scores[0]) < 1e-6
    ranked = client.rank(pairs[0][0], ["b", "a", "c", "b"], 3, True, model="cross")
    assert [each["score"] for each in ranked] == sorted((r["score"] for r in ranked), reverse=True)
    assert all(each["text"] == ["b", "a", "c", "b"][each["corpus_id"]] for each in ranked)
    cases = expected("bert_sequences")["cases"]
    texts = [each["text"] for each in cases if is_alone(each)]
    want = [each["SCORES"][0] for each in cases if is_alone(each)]
    assert abs(client.predict(texts, model="labels") - np.array(want)).max() < 1e-4
    many = [f"{each} {n}" for n in range(100) for each in "abc"]  # two requests
    scores = client.predict([("a", text) for text in many], model="cross", logits=True)
    got = [each["corpus_id"] for each in client.rank("a", many, model="cross")]
    assert sorted(got) == [*range(300)] and (np.diff(scores[got]) <= 1e-5).all()
    assert client.rank("a", [], model="cross") == []
    assert client.predict([], model="cross").shape == (0,)
    with pytest.raises(castor.InvalidFieldError, match="label"):
        client.rank("a", ["b", "c"], model="labels")
    with pytest.raises(TypeError, match="documents several"):
        client.rank("a", "b", model="cross")
    [plain], [told] = (
        client.rank("a", ["b"], model="yesno", instruction=text) for text in (None, "Judge not")
    )
    assert plain["score"] != told["score"]
    assert told == client.rank("a", ["b"], model="yesno", prompt="Judge not")[0]
    with pytest.raises(castor.InvalidFieldError, match="instruction"):
        client.rank("a", ["b"], model="cross", instruction="Judge not")
    with pytest.raises(castor.InvalidFieldError) as caught:
        client.rank("a", ["b"] * 299 + ["long " * 600], model="cross", truncate=False)
    assert caught.value.index == 299


def test_tokens_of_the_vocabulary(client: castor.Client) -> None:
    text = "a beaver's 🦫 dam"
    tokens = client.tokenize(text, model="minilm", return_tokens=True)
    assert tokens.tokens[:2] == ["[CLS]", "a"] and tokens.special.tolist()[:2] == [True, False]
    cut = [text[begin:end] for begin, end in tokens.offsets[~tokens.special]]
    assert cut == ["a", "beaver", "'", "s", "🦫", "dam"]
    many = client.tokenize([text, ""] * 200, model="minilm", add_special_tokens=False)
    assert len(many) == 400 and len(many[1].ids) == 0
    assert np.array_equal(many[398].ids, tokens.ids[1:-1])
    assert client.detokenize([101, 1037, 5477], model="minilm") == "[CLS] a dam"
    options = {"model": "minilm", "skip_special_tokens": True}
    assert client.detokenize([tokens.ids[:3], [101]], **options) == ["a beaver", ""]
    assert client.tokenize([], model="minilm") == client.detokenize([], model="minilm") == []


def test_sparse_rows(client: castor.Client) -> None:
    sparse = client.encode_sparse(["the mill", "", "by the river"] * 200, model="splade")
    assert len(sparse.indptr) == 601 and sparse.indptr[-1] == len(sparse.values)
    one = client.encode_sparse("the mill", model="splade")
    begin, end = sparse.indptr[3:5]
    assert np.array_equal(one.indices, sparse.indices[begin:end])
    assert abs(one.values - sparse.values[begin:end]).max() < 1e-5


def softmax_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    scores = np.einsum("qhd,khd->qhk", query, key).astype(np.float64) / query.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("qhk,khd->qhd", weights / weights.sum(-1, keepdims=True), value)


def arrays(tokens: int = 50) -> list[np.ndarray]:
    random = np.random.default_rng(tokens)
    return [random.standard_normal((tokens, 2, 8), dtype=np.float32) for _ in range(3)]


def test_attention(client: castor.Client) -> None:
    q, k, v = arrays()
    answer = client.attend(q, k, v, lengths=[20, 30])
    want = np.concatenate(
        [softmax_attention(*(x[part] for x in (q, k, v))) for part in (slice(0, 20), slice(20, 50))]
    )
    assert abs(answer.output - want).max() < 1e-5 and answer.log_sum_exp is None
    parts = [
        client.attend(q, k[at], v[at], lengths=[50], key_lengths=[25], return_log_sum_exp=True)
        for at in (slice(0, 25), slice(25, 50))
    ]
    merged, _ = castor.merge([p.output for p in parts], [p.log_sum_exp for p in parts])
    assert abs(merged - softmax_attention(q, k, v)).max() < 1e-5
    kernel = castor.ImprovedClustered(clusters=3, topk=5, seed=9)
    report = client.attend(q, k, v, kernel=kernel, fidelity_rows=8).report
    assert report.kernel_name == "improved_clustered" and report.kernel.topk == 5
    assert report.fidelity.rows == 8 and report.fidelity.relative_error > 0
    half = client.attend(*(x.astype(np.float16) for x in (q, k, v)))
    assert half.output.dtype == np.float16
    shared = client.attend(q, k, value_dim=4)
    assert abs(shared.output - softmax_attention(q, k, k[..., :4])).max() < 1e-5
    window = client.attend(q, k, v, positions=castor.Positions(left=0, right=0))
    assert abs(window.output - v).max() < 1e-6
    hidden = np.where(np.arange(50) < 10, 0, -np.inf).astype(np.float32)
    biased = client.attend(q, k, v, key_bias=hidden, priority="high", softmax_scale=8**-0.5)
    assert abs(biased.output - softmax_attention(q, k[:10], v[:10])).max() < 1e-5
    with pytest.raises(castor.InvalidFieldError) as caught:
        client.attend(q, k[:3], v)
    assert caught.value.field == "value.shape[0]"


def test_attention_of_large_arrays(client: castor.Client) -> None:
    _, k, v = arrays(3000)
    for rows in (2, 1500):  # a query that goes into the message, and one beside it
        q = arrays(rows)[0]
        want = softmax_attention(q, k, v)
        assert abs(client.attend(q, k, v).output - want).max() < 1e-5
        halves = client.attend(*(x.astype(np.float16) for x in (q, k, v)))
        assert abs(halves.output - want).max() < 0.02
        with client.shared_memory(k.nbytes) as memory:
            mixed = client.attend(q, memory.put(k), v, memory=memory)
        assert abs(mixed.output - want).max() < 1e-5
    prefix = client.attend(q, k, value_dim=4)
    assert abs(prefix.output - softmax_attention(q, k, k[..., :4])).max() < 1e-5
    batch = client.attend(*(x.reshape(3, 500, 2, 8) for x in (q, k[:1500], v[:1500])))
    parts = [slice(i, i + 500) for i in range(0, 1500, 500)]
    want = np.concatenate([softmax_attention(*(x[part] for x in (q, k, v))) for part in parts])
    assert abs(batch.output.reshape(want.shape) - want).max() < 1e-5
    with pytest.raises(castor.InvalidFieldError) as caught:
        client.attend(q, k, v[:2000])
    assert caught.value.field == "value.shape[0]"


def test_tensors_by_dlpack(client: castor.Client) -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(each).requires_grad_() for each in arrays())
    exact = client.attend(q, k, v).output
    assert abs(exact - softmax_attention(*arrays())).max() < 1e-5
    short = client.attend(*(each.bfloat16() for each in (q, k, v))).output
    assert short.dtype == np.float32 and abs(short - exact).max() < 0.05

    negative = torch.complex(q, -q).conj().imag.detach()  # q, which is stored as -q
    assert negative.is_neg() and abs(client.attend(negative, k, v).output - exact).max() < 1e-6
    with pytest.raises(TypeError, match="key is not a plain CPU tensor"):
        client.attend(q, k.to("meta"), v)
    rows = client.encode(TEXTS, model="minilm", convert_to_tensor=True)
    assert np.array_equal(rows, client.encode(TEXTS, model="minilm"))


def test_a_tensor_elsewhere_is_refused(client: castor.Client) -> None:
    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: object) -> None:
            raise BufferError("on a GPU")

    with pytest.raises(TypeError, match="query is not a plain CPU tensor: on a GPU"):
        client.attend(OnGpu(), *arrays()[1:])


def test_shared_memory(client: castor.Client) -> None:
    q, k, v = arrays()
    with client.shared_memory(1 << 16) as memory:
        placed, output = [memory.put(each) for each in (q, k, v)], memory.array(q.shape)
        answer = client.attend(*placed, memory=memory, output=output)
        assert answer.output is output
        assert abs(output - softmax_attention(q, k, v)).max() < 1e-5
        assert abs(client.attend(q, placed[1], v, memory=memory).output - output).max() < 1e-6
        with pytest.raises(MemoryError, match="bytes are left"):
            memory.array(1 << 16)
        for wrong in (np.empty_like(q), output[:, ::2], [1]):
            with pytest.raises(ValueError, match="output is not"):
                client.attend(*placed, memory=memory, output=wrong)
        with pytest.raises(ValueError, match="shape is"):
            memory.array(-1)
        path = Path("/dev/shm" + memory.key)
        assert path.exists()
        unused = memory
    assert not path.exists() and output.any()  # the array outlives it
    with pytest.raises(castor.RegionNotFoundError):
        client.attend(*placed, memory=unused)
    with pytest.raises(ValueError, match="size is 0"), client.shared_memory(0):
        pass
    with pytest.raises(ZeroDivisionError), client.shared_memory(64) as memory:
        _ = 1 // 0
    assert not Path("/dev/shm" + memory.key).exists()


def test_bad_input_names_the_field(client: castor.Client) -> None:
    with pytest.raises(castor.ModelNotFoundError, match="no model"):
        client.encode("a", model="missing")
    with pytest.raises(LookupError, match="missing"):
        client.model("missing")
    with pytest.raises(castor.InvalidFieldError, match="model must be one of cross, "):
        client.encode([])
    with pytest.raises(castor.KernelNotAvailableError):
        client.encode("a", model="minilm", kernel="cast")
    with pytest.raises(castor.InvalidFieldError) as caught:
        client.encode(["a"], model="minilm", truncate_dim=999)
    assert caught.value.field == "dimensions"
    with pytest.raises(TypeError, match="truncate_dimm"):
        client.encode("a", truncate_dimm=3)
    with pytest.raises(ValueError, match="precision 'int8' of a stream needs ranges"):
        list(client.encode_stream(["a"], precision="int8"))
    with pytest.raises(ValueError, match="precision 'int4'"):
        client.encode("a", model="minilm", precision="int4")
    with pytest.raises(ValueError, match="in_flight is 0"):
        list(client.encode_stream(["a"], in_flight=0))
    with pytest.raises(ValueError, match="no texts"):
        client.encode_with_report([], model="minilm")
    with pytest.raises(ValueError, match="no spans"):
        client.encode_spans("a", [], model="minilm")
    for wrong in (None, b"abc", 3):
        with pytest.raises(TypeError, match=f"texts is {type(wrong).__name__}, not str"):
            client.encode(wrong, model="minilm")
    with pytest.raises(TypeError, match="texts is str, not several"):
        list(client.encode_stream("abc"))
    with pytest.raises(TypeError, match="truncate_dim is 'x'"):
        client.encode("a", model="minilm", truncate_dim="x")
    with pytest.raises(ValueError, match="timeout is inf"):
        client.encode("a", model="minilm", timeout=float("inf"))
    with pytest.raises(TypeError, match="in one call"):
        client.predict(["a", ("b", "c")], model="cross")
    with pytest.raises(ValueError, match=r"texts\[301\] is not Unicode"):
        client.encode(["a"] * 301 + ["\ud800"], model="minilm")
    with pytest.raises(castor.DeadlineExceededError):
        client.encode(["word " * 400] * 200, model="minilm", timeout=0.002)


def test_a_stream_takes_texts_as_it_needs_them(client: castor.Client) -> None:
    taken = 0
    threads = set()

    def texts():
        nonlocal taken
        while True:  # endless
            taken += 1
            threads.add(threading.get_ident())
            yield f"text {taken}"

    stream = client.encode_stream(texts(), model="minilm", in_flight=2)
    for _ in range(700):
        next(stream)
    assert taken <= 700 + 3 * 256 and threads == {threading.get_ident()}
    stream.close()
    assert list(client.encode_stream([], model="minilm")) == []


def test_a_streams_errors_name_the_index(client: castor.Client) -> None:
    texts = ["a"] * 600 + ["word " * 300] + ["a"] * 600
    rows = client.encode_stream(texts, model="minilm", truncate=False)
    got = 0
    with pytest.raises(castor.InvalidFieldError) as caught:
        for _ in rows:
            got += 1
    assert caught.value.index == 600 and got <= 512

    def broken():
        yield "a"
        raise KeyError("of the source")

    with pytest.raises(KeyError, match="of the source"):
        list(client.encode_stream(broken(), model="minilm"))
    with pytest.raises(TypeError, match=r"texts\[1\] is int"):
        list(client.encode_stream(["a", 3], model="minilm"))


def test_threads_share_a_client(client: castor.Client) -> None:
    want = client.encode(TEXTS, model="minilm")
    worst = []

    def work() -> None:
        worst.append(max(abs(client.encode(TEXTS, model="minilm") - want).max() for _ in range(5)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 8 and max(worst) < 2e-5


def test_close(server: Server) -> None:
    client = castor.Client(server.target)
    client.wait_ready(10)
    client.close()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.encode("a")


def test_no_descriptors_or_threads_are_left(server: Server) -> None:
    def used() -> int:
        return len(os.listdir("/proc/self/fd"))

    def use() -> None:
        with castor.Client(server.target) as client:
            client.encode("a", model="minilm")
            next(client.encode_stream(["a"] * 600, model="minilm", in_flight=3))
        gc.collect()

    use()
    before = used()
    for _ in range(8):
        use()
    assert used() <= before + 4
