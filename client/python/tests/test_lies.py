"""A server that lies: each answer that does not fit its request is a CastorError, in time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest

import castor
from castor.rpc import error_details_pb2, status_pb2
from castor.v1 import (
    attention_pb2,
    attention_pb2_grpc,
    encoder_pb2,
    encoder_pb2_grpc,
    kernel_pb2,
    model_pb2,
    model_pb2_grpc,
    server_pb2,
    server_pb2_grpc,
    tensor_pb2,
)

TIMEOUT = 2.0
Encoded, Tensor = encoder_pb2.EncodeResponse, tensor_pb2.Tensor


class Liar(
    encoder_pb2_grpc.EncoderServiceServicer,
    attention_pb2_grpc.AttentionServiceServicer,
    model_pb2_grpc.ModelServiceServicer,
    server_pb2_grpc.ServerServiceServicer,
):
    """Answers `says(request, context)`, or with `streams(requests, context)`."""

    says: Callable[[Any, Any], Any]
    streams: Callable[[Any, Any], Iterator[Any]]
    model = model_pb2.Model(name="m", hidden_size=4, max_tokens=9, vocabulary_size=50)

    def _say(self, request: Any, context: Any) -> Any:
        return self.says(request, context)

    Encode = Rerank = Tokenize = Detokenize = Attend = GetServerInfo = _say

    def EncodeStream(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield from self.streams(requests, context)

    def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        return model_pb2.ListModelsResponse(models=[self.model])

    def GetModel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.model


@pytest.fixture
def liar() -> Iterator[Liar]:
    made = Liar()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    encoder_pb2_grpc.add_EncoderServiceServicer_to_server(made, server)
    attention_pb2_grpc.add_AttentionServiceServicer_to_server(made, server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(made, server)
    server_pb2_grpc.add_ServerServiceServicer_to_server(made, server)
    made.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield made
    server.stop(0)


def clients(liar: Liar) -> list[tuple[str, Callable[[str, tuple, dict], Any]]]:
    """Ways to call a method by its name."""

    async def awaited(name: str, args: tuple, options: dict) -> Any:
        async with castor.AsyncClient(liar.target, timeout=TIMEOUT) as client:
            if name == "encode_stream":
                return [row async for row in client.encode_stream(*args, **options)]
            return await getattr(client, name)(*args, **options)

    def blocking(name: str, args: tuple, options: dict) -> Any:
        with castor.Client(liar.target, timeout=TIMEOUT) as client:
            result = getattr(client, name)(*args, **options)
            return list(result) if name == "encode_stream" else result

    def dropped_in(name: str, args: tuple, options: dict) -> Any:
        with castor.Client(liar.target, timeout=TIMEOUT) as client:
            return castor.SentenceTransformer(client).encode(*args, **options)

    return [
        ("Client", blocking),
        ("AsyncClient", lambda *call: asyncio.run(awaited(*call))),
        ("SentenceTransformer", dropped_in),
    ]


def assert_refused(liar: Liar, name: str, args: tuple, options: dict, kind: type) -> None:
    for who, call in clients(liar):
        if who == "SentenceTransformer" and (name != "encode" or options):
            continue
        begin = time.monotonic()
        with pytest.raises(kind):
            result = call(name, args, options)
            print(who, "believed", result)
        assert time.monotonic() - begin < TIMEOUT + 1, who


def rows(
    count: int = 2,
    width: int = 4,
    shape: Any = None,
    dtype: int = tensor_pb2.FLOAT32,
    raw: Any = None,
    **said: Any,
) -> Encoded:
    """An honest answer of two texts, but for what is said."""
    values = np.arange(count * width, dtype="<f4")
    shape = [count, width] if shape is None else shape
    output = Tensor(dtype=dtype, shape=shape, raw=values.tobytes() if raw is None else raw)
    counts = {"lengths": [1] * count, "token_counts": [2] * count, "truncated": [False] * count}
    return Encoded(**{"output": output, **counts, **said})


TWO = (["a", "b"],)
HUGE = 1 << 62
ENCODE = {
    "fewer rows": rows(1),
    "no rows": rows(0),
    "more rows": rows(3),
    "fewer rows, counts of two": rows(1, lengths=[1, 1], token_counts=[2, 2], truncated=[0, 0]),
    "more rows, counts of two": rows(3, lengths=[1, 1], token_counts=[2, 2], truncated=[0, 0]),
    "rows of one text twice": rows(2, lengths=[2, 0]),
    "nothing": Encoded(),
    "no output": Encoded(lengths=[1, 1], token_counts=[2, 2], truncated=[0, 0]),
    "a shape of -1": rows(shape=[-1, 4]),
    "a shape of -1, -1": rows(shape=[-1, -1]),
    "a shape of -2, -4": rows(shape=[-2, -4]),
    "no shape": rows(shape=[]),
    "rank 1": rows(shape=[8]),
    "rank 3": rows(shape=[1, 2, 4]),
    "rank 9": rows(shape=[1] * 7 + [2, 4]),
    "too large a shape": rows(shape=[2, 1 << 40]),
    "an overflowing shape": rows(shape=[HUGE, 4]),
    "a shape of zero columns": rows(shape=[2, 0], raw=b""),
    "transposed": rows(shape=[4, 2]),
    "too few bytes": rows(raw=b"\0" * 31),
    "too many bytes": rows(raw=b"\0" * 33),
    "no dtype": rows(dtype=0),
    "an unknown dtype": rows(dtype=99),
    "int64": rows(shape=[2, 1], dtype=tensor_pb2.INT64, raw=b"\0" * 16),
    "int8": rows(dtype=tensor_pb2.INT8, raw=b"\0" * 8),
    "float16": rows(dtype=tensor_pb2.FLOAT16, raw=b"\0" * 16),
    "int32 of the same size": rows(dtype=tensor_pb2.INT32),
    "elements elsewhere": rows(
        output=Tensor(dtype=1, shape=[2, 4], shared_memory={"region": "x", "size": 32})
    ),
    "negative lengths": rows(lengths=[3, -1]),
    "short token counts": rows(token_counts=[2]),
    "negative token counts": rows(token_counts=[2, -2]),
    "huge token counts": rows(token_counts=[2, HUGE]),
    "truncated of three": rows(truncated=[False] * 3),
    "an error": rows(error={"code": 3, "message": "no"}),
    "an error without a code": Encoded(error={}),
    "sparse rows": Encoded(sparse={"indices": [1, 2], "values": [1, 1], "lengths": [1, 1]}),
}


@pytest.mark.parametrize("lie", ENCODE)
def test_encode(liar: Liar, lie: str) -> None:
    liar.says = lambda request, context: ENCODE[lie]
    assert_refused(liar, "encode", TWO, {}, castor.CastorError)


def test_the_honest_are_believed(liar: Liar) -> None:
    liar.says = lambda request, context: rows()
    for _, call in clients(liar):
        assert call("encode", TWO, {}).shape == (2, 4)


def tokens(**said: Any) -> Encoded:
    return rows(4, **{"lengths": [1, 3], "token_counts": [1, 3], "truncated": [0, 0], **said})


def sparse(indices: list, values: list, lengths: list) -> Encoded:
    counts = {"token_counts": [2, 2], "truncated": [0, 0]}
    return Encoded(sparse={"indices": indices, "values": values, "lengths": lengths}, **counts)


def ranked(*found: tuple[int, float], **said: Any) -> encoder_pb2.RerankResponse:
    results = [{"index": n, "score": logit, "logit": logit} for n, logit in found]
    counts = {"token_counts": [2, 2], "truncated": [0, 0]}
    return encoder_pb2.RerankResponse(results=results, **{**counts, **said})


def cut(**said: Any) -> encoder_pb2.TokenizeResponse:
    names = ("ids", "type_ids", "special", "pair", "character_begins", "character_ends")
    honest = {name: [0] * 3 for name in names}
    counts = {"lengths": [1, 2], "truncated": [0, 0]}
    return encoder_pb2.TokenizeResponse(**{**honest, **counts, **said})


def attended(shape: list, log: list | None = None, dtype: int = 1) -> attention_pb2.AttendResponse:
    def zeros(shape: list) -> Tensor:
        return Tensor(dtype=dtype, shape=shape, raw=b"\0" * 4 * math.prod(shape))

    return attention_pb2.AttendResponse(
        output=zeros(shape), log_sum_exp=zeros(log) if log else None
    )


def of_one(width: int = 4, **said: Any) -> Encoded:
    counts = {"token_counts": [5], "truncated": [0]}
    return rows(2, width, **{"lengths": [2], **counts, **said})


NAN = math.nan
QUERY = np.ones((2, 1, 4), np.float32)
SPANS = ("abc", [(0, 1), (1, 2)])
OTHERS: dict[str, tuple[str, tuple, dict, list[Any]]] = {
    "dimensions": ("encode", TWO, {"truncate_dim": 3}, [rows(), rows(width=2)]),
    "bits": ("encode", TWO, {"precision": "ubinary"}, [rows(), rows(dtype=6, raw=b"\0" * 8)]),
    "int8 with ranges": (
        "encode",
        TWO,
        {"precision": "int8", "ranges": [[0] * 4, [1] * 4]},
        [rows(), rows(dtype=7, raw=b"\0" * 8)],
    ),
    "float16": ("encode", TWO, {"precision": "float16"}, [rows(), rows(raw=b"\0" * 16)]),
    "request_id": ("encode", TWO, {"request_id": "x"}, [rows(request_id="y"), rows()]),
    "reports": ("encode_with_report", TWO, {}, [rows(token_counts=[1]), rows(truncated=[])]),
    "tokens": (
        "encode_tokens",
        TWO,
        {},
        [
            tokens(lengths=lengths)
            for lengths in ([5, -1], [100, 2], [1], [1, 1, 1, 1], [1, 1], [HUGE, HUGE], [], [2, 2])
        ]
        + [tokens(token_counts=[1, 2]), rows(2, lengths=[])],
    ),
    "spans": (
        "encode_spans",
        SPANS,
        {},
        [
            of_one(spans=[{"begin": 0, "end": 1}] * 3),
            of_one(spans=[]),
            of_one(spans=[{"begin": 2, "end": 1}] * 2),
            of_one(spans=[{"begin": -1, "end": 1}] * 2),
            of_one(spans=[{"begin": 0, "end": 6}] * 2),
            of_one(spans=[{"begin": 0, "end": 1}] * 2, lengths=[1]),
            rows(1, spans=[{"begin": 0, "end": 1}] * 2),
        ],
    ),
    "sparse": (
        "encode_sparse",
        TWO,
        {},
        [
            sparse([1, 2], [1, 2], [2, 5]),
            sparse([1, 2], [1, 2], [4, -2]),
            sparse([1, 2], [1], [1, 1]),
            sparse([1], [1], [1]),
            sparse([-5, 2], [1, 1], [1, 1]),
            sparse([1, 2], [NAN, 1], [1, 1]),
            sparse([1, 2], [math.inf, 1], [1, 1]),
            sparse([1, 2], [1, -1], [1, 1]),
            sparse([2, 1], [1, 1], [2, 0]),
            sparse([1, 1], [1, 1], [2, 0]),
            sparse([1, 50], [1, 1], [1, 1]),
            sparse([1, 2, 3], [1, 1, 1], [1, 1, 1]),
            rows(),
        ],
    ),
    "rank": (
        "rank",
        ("q", ["a", "b"]),
        {},
        [
            ranked((7, 1)),
            ranked((-1, 1), (0, 0)),
            ranked((0, 1), (2, 0)),
            ranked(),
            ranked((0, 1), (0, 0.5)),
            ranked((0, 0.5), (1, 1)),
            ranked((1, 1), (0, 1)),
            ranked((0, NAN), (1, 1)),
            ranked((0, 1), (1, 0.5), token_counts=[1]),
            ranked((0, 1), (1, 0.5), truncated=[]),
        ],
    ),
    "tokenize": (
        "tokenize",
        TWO,
        {},
        [
            cut(lengths=[5, 5]),
            cut(lengths=[5, -2]),
            cut(lengths=[3]),
            encoder_pb2.TokenizeResponse(),
            cut(special=[0]),
            cut(pair=[0] * 4),
            cut(type_ids=[]),
            cut(character_begins=[1, 2, 3, 4]),
            cut(character_begins=[1, 2, 3]),
            cut(character_ends=[-1, -1, -1]),
            cut(truncated=[0]),
            cut(tokens=["x"] * 3),
            cut(ids=[-1, 0, 0]),
        ],
    ),
    "words": ("tokenize", TWO, {"return_tokens": True}, [cut(), cut(tokens=["x"] * 2)]),
    "detokenize": (
        "detokenize",
        ([[1], [2]],),
        {},
        [{"texts": texts} for texts in ([], ["a"], ["a", "b", "c"])],
    ),
    "predict": (
        "predict",
        ([("a", "b"), ("c", "d")],),
        {},
        [
            rows(1),
            rows(shape=[2, 4, 1]),
            rows(labels=["x"]),
            rows(2, 1, shape=[2]),
            tokens(),
            rows(4, lengths=[2, 2], token_counts=[2, 2], truncated=[0, 0]),
            rows(dtype=tensor_pb2.FLOAT16, raw=b"\0" * 16),
        ],
    ),
    "attend": (
        "attend",
        (QUERY,) * 3,
        {},
        [attended([1, 1, 4]), attended([2, 4]), attended([2, 1, 4], dtype=4), {}],
    ),
    "log_sum_exp": (
        "attend",
        (QUERY,) * 3,
        {"return_log_sum_exp": True},
        [attended([2, 1, 4]), attended([2, 1, 4], [2]), attended([2, 1, 4], [2, 1, 1])],
    ),
}
NAMES = {"detokenize": encoder_pb2.DetokenizeResponse, "attend": attention_pb2.AttendResponse}


@pytest.mark.parametrize("what", OTHERS)
def test_other_methods(liar: Liar, what: str) -> None:
    name, args, options, lies = OTHERS[what]
    for lie in lies:
        made = NAMES[name](**lie) if isinstance(lie, dict) else lie
        liar.says = lambda request, context, made=made: made
        assert_refused(liar, name, args, options, castor.WrongAnswerError)


@pytest.mark.parametrize(
    "model",
    [
        {"hidden_size": -4},
        {"hidden_size": HUGE},
        {"hidden_size": 0},
        {"dimensions": -1},
        {"name": ""},
        {"vocabulary_size": -1},
        {"max_tokens": -1},
    ],
    ids=str,
)
def test_models(liar: Liar, model: dict) -> None:
    liar.model = model_pb2.Model(**{"name": "m", "hidden_size": 4, **model})
    assert_refused(liar, "encode", ([],), {}, castor.WrongAnswerError)
    assert_refused(liar, "encode", ([],), {"model": "m"}, castor.WrongAnswerError)


@pytest.mark.parametrize("prefix", ["x", "/../../tmp/", "/a/", "/\0", "/" + "a" * 200])
def test_a_key_is_no_path(liar: Liar, prefix: str) -> None:
    limits = {"shared_memory_key_prefix": prefix}
    liar.says = lambda request, context: server_pb2.ServerInfo(limits=limits)
    with castor.Client(liar.target, timeout=TIMEOUT) as client:
        with pytest.raises(castor.WrongAnswerError), client.shared_memory(64):
            pass


def test_kernels_of_later_servers_are_no_error(liar: Liar) -> None:
    kernel = kernel_pb2.Clustered(clustering=99)  # type: ignore[arg-type]
    report = {"name": 99, "clustered": kernel}
    liar.says = lambda request, context: rows(kernel=report)
    with castor.Client(liar.target) as client:
        found = client.encode_with_report(*TWO).reports[0]
        assert found.kernel_name == "99" and found.kernel.clustering == "99"


def status(code: int, *details: Any, urls: tuple[str, ...] = ()) -> status_pb2.Status:
    made = status_pb2.Status(code=code, message="why")
    for detail in details:
        url = "type.googleapis.com/google.rpc." + detail.DESCRIPTOR.name
        made.details.add(type_url=url, value=detail.SerializeToString())
    for url in urls:
        made.details.add(type_url=url, value=b"\x0a\x01z")
    return made


def retry(seconds: int, nanos: int = 0) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(retry_delay={"seconds": seconds, "nanos": nanos})


def info(reason: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="castor")


def blamed(field: str) -> error_details_pb2.BadRequest:
    return error_details_pb2.BadRequest(field_violations=[{"field": field}])


CODES = {code.value[0]: code for code in grpc.StatusCode}
ODD = ("x.ErrorInfo", "DESCRIPTOR", "a.__name__", "a._globals", "a.__doc__", "a._builder", "")
STATUSES = {
    "garbage": (3, b"\xff\xff"),
    "a reason of Python's": (3, status(3, info("__class__")).SerializeToString()),
    "details of other names": (3, status(3, urls=ODD).SerializeToString()),
    "another code": (3, status(0, info("INVALID_FIELD")).SerializeToString()),
    "2^62 s": (8, status(8, info("QUEUE_FULL"), retry(HUGE)).SerializeToString()),
    "-5 s": (8, status(8, info("QUEUE_FULL"), retry(-5)).SerializeToString()),
    "an hour": (14, status(14, info("DRAINING"), retry(3600)).SerializeToString()),
    "a field of 30 digits": (3, status(3, blamed(f"texts.texts[{'9' * 30}]")).SerializeToString()),
}


@pytest.mark.parametrize("what", STATUSES)
def test_statuses(liar: Liar, what: str) -> None:
    code, raw = STATUSES[what]

    def refuse(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", raw),))
        context.abort(CODES[code], "why")

    liar.says = refuse
    assert_refused(liar, "encode", TWO, {}, castor.CastorError)
    liar.streams = lambda requests, context: refuse(next(requests), context)
    assert_refused(liar, "encode", MANY, {}, castor.CastorError)


MANY = (["x" * 20_000] * 10,)  # five requests of two texts


def each(answer: Callable[[Any], list[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
    def answers(requests: Any, context: Any) -> Iterator[Any]:
        for request in requests:
            yield from answer(request)

    return answers


def honest(request: Any, **said: Any) -> Encoded:
    return rows(len(request.texts.texts), **{"request_id": request.request_id, **said})


def error(request: Any, *arguments: Any) -> Encoded:
    made = Encoded(request_id=request.request_id)
    made.error.ParseFromString(status(*arguments).SerializeToString())
    return made


def endless(requests: Any, context: Any) -> Iterator[Any]:
    next(requests)
    while context.is_active():
        yield rows(request_id="zzz")


def silent(requests: Any, context: Any) -> Iterator[Any]:
    for _ in requests:
        pass
    while context.is_active():
        time.sleep(0.02)
    yield rows()


def one_more(requests: Any, context: Any) -> Iterator[Any]:
    for request in requests:
        yield honest(request)
    yield rows(request_id="4")


full = (8, info("QUEUE_FULL"), retry(0, 300_000_000))
STREAMS: dict[str, tuple[Callable[[Any, Any], Iterator[Any]], type]] = {
    "rows of other counts": (
        each(lambda r: [rows(1 + int(r.request_id), request_id=r.request_id)]),
        castor.WrongAnswerError,
    ),
    "unknown ids": (each(lambda r: [honest(r, request_id="99")]), castor.WrongAnswerError),
    "no ids": (each(lambda r: [honest(r, request_id="")]), castor.WrongAnswerError),
    "ids of the one before": (
        each(lambda r: [honest(r, request_id=str(int(r.request_id) - 1))]),
        castor.WrongAnswerError,
    ),
    "endless unknown ids": (endless, castor.WrongAnswerError),
    "silence": (silent, castor.DeadlineExceededError),
    "an end at once": (lambda requests, context: iter(()), castor.UnavailableError),
    "an error without a code": (each(lambda r: [error(r, 0)]), castor.WrongAnswerError),
    "an error of an unknown id": (
        each(lambda r: [Encoded(request_id="99", error={"code": 3})]),
        castor.WrongAnswerError,
    ),
    "UNAVAILABLE": (each(lambda r: [error(r, 14)]), castor.UnavailableError),
    "UNAVAILABLE for an hour": (each(lambda r: [error(r, 14, retry(3600))]), castor.CastorError),
    "QUEUE_FULL always": (each(lambda r: [error(r, *full)]), castor.QueueFullError),
    "QUEUE_FULL and silence": (
        each(lambda r: [error(r, *full)] if int(r.request_id) else []),
        castor.CastorError,
    ),
    "each thrice": (each(lambda r: [honest(r)] * 3), castor.WrongAnswerError),
    "one twice, last": (one_more, castor.WrongAnswerError),
    "other widths": (
        each(lambda r: [honest(r, width=4 + int(r.request_id))]),
        castor.WrongAnswerError,
    ),
    "no rows": (each(lambda r: [rows(0, request_id=r.request_id)]), castor.WrongAnswerError),
    "nothing but ids": (
        each(lambda r: [Encoded(request_id=r.request_id)]),
        castor.WrongAnswerError,
    ),
}


@pytest.mark.parametrize("what", STREAMS)
def test_streams(liar: Liar, what: str) -> None:
    liar.streams, kind = STREAMS[what]
    assert_refused(liar, "encode", MANY, {}, kind)
    assert_refused(liar, "encode_stream", MANY, {}, kind)


def test_a_stream_waits_while_the_queue_is_full(liar: Liar) -> None:
    seen: dict[str, int] = {}

    def answer(request: Any) -> list[Any]:
        seen[request.request_id] = seen.get(request.request_id, 0) + 1
        return [error(request, *full) if seen[request.request_id] < 3 else honest(request)]

    liar.streams = each(answer)
    for _, call in clients(liar):
        seen.clear()
        assert call("encode", MANY, {}).shape == (10, 4)
        assert max(seen.values()) >= 3


def test_a_stream_that_breaks_goes_on(liar: Liar) -> None:
    """Every third answer ends the stream, as a server does whose reader has paused."""

    def broken(requests: Any, context: Any) -> Iterator[Any]:
        for count, request in enumerate(requests):
            if count == 2:
                context.abort(grpc.StatusCode.CANCELLED, "")
            yield Encoded(**_fields(request))

    liar.streams = broken
    texts = ["x" * n for n in range(20_000, 20_020)]
    for name in ("Client", "AsyncClient"):
        call = dict(clients(liar))[name]
        got = call("encode_stream", (texts,), {"in_flight": 3})
        assert [int(row[0]) for row in got] == [len(text) // 2 * 2 for text in texts]


def _fields(request: Any) -> dict[str, Any]:
    count = len(request.texts.texts)
    values = np.full((count, 4), len(request.texts.texts[0]), "<f4")
    counts = {"lengths": [1] * count, "token_counts": [2] * count, "truncated": [0] * count}
    output = Tensor(dtype=1, shape=[count, 4], raw=values.tobytes())
    return {"request_id": request.request_id, "output": output, **counts}


def test_a_slow_reader_of_messages_does_not_stop_a_writer(liar: Liar) -> None:
    """The server takes a message only when the answer before is taken, through small windows."""
    liar.streams = each(lambda r: [_big(r)])
    texts = ["x" * 30_000] * 300
    for name in ("Client", "AsyncClient"):
        got = dict(clients(liar))[name]("encode_stream", (texts,), {"in_flight": 100})
        assert len(got) == 300


def _big(request: Any) -> Encoded:
    count = len(request.texts.texts)
    return rows(count, 20_000, request_id=request.request_id)


def test_unavailable_is_retried_within_the_timeout(liar: Liar) -> None:
    until = time.monotonic() + 1.7

    def away(request: Any, context: Any) -> Any:
        if time.monotonic() < until:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return rows()

    liar.says = away
    with castor.Client(liar.target, timeout=8) as client:
        assert client.encode(*TWO).shape == (2, 4)


def test_pushback_is_obeyed(liar: Liar) -> None:
    calls = 0

    def never(request: Any, context: Any) -> Any:
        nonlocal calls
        calls += 1
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "-1"),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "never")

    liar.says = never
    for who, call in clients(liar):
        calls = 0
        with pytest.raises(castor.UnavailableError):
            call("encode", TWO, {})
        assert calls == 1, who
