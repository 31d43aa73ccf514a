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
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from test_pure import status

import castor
from castor.rpc import error_details_pb2, status_pb2
from castor.v1 import attention_pb2, encoder_pb2, model_pb2, server_pb2, tensor_pb2

TIMEOUT = 2.0
HUGE, NAN = 1 << 62, math.nan
Encoded, Tensor = encoder_pb2.EncodeResponse, tensor_pb2.Tensor


class Liar(grpc.GenericRpcHandler):
    """Answers `says(request, context)`, or with `streams(requests, context)`."""

    says: Callable[[Any, Any], Any]
    streams: Callable[[Any, Any], Iterator[Any]]
    model = model_pb2.Model(name="m", hidden_size=4, max_tokens=9, vocabulary_size=50)

    def service(self, details: Any) -> Any:
        found = Default().FindMethodByName(details.method[1:].replace("/", "."))
        codecs = GetMessageClass(found.input_type).FromString, lambda said: said.SerializeToString()
        if found.name == "EncodeStream":
            return grpc.stream_stream_rpc_method_handler(lambda *of: self.streams(*of), *codecs)
        models = model_pb2.ListModelsResponse(models=[self.model])
        known = {"GetModel": lambda *_: self.model, "ListModels": lambda *_: models}
        answer = known.get(found.name, lambda *of: self.says(*of))
        return grpc.unary_unary_rpc_method_handler(answer, *codecs)


@pytest.fixture
def liar() -> Iterator[Liar]:
    made, server = Liar(), grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((made,))
    made.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield made
    server.stop(0)


def by_client(liar: Liar, name: str, args: tuple, options: dict) -> Any:
    with castor.Client(liar.target, timeout=TIMEOUT) as client:
        result = getattr(client, name)(*args, **options)
        return list(result) if name == "encode_stream" else result


def by_async_client(liar: Liar, name: str, args: tuple, options: dict) -> Any:
    async def run() -> Any:
        async with castor.AsyncClient(liar.target, timeout=TIMEOUT) as client:
            if name == "encode_stream":
                return [row async for row in client.encode_stream(*args, **options)]
            return await getattr(client, name)(*args, **options)

    return asyncio.run(run())


def by_drop_in(liar: Liar, name: str, args: tuple, options: dict) -> Any:
    with castor.Client(liar.target, timeout=TIMEOUT) as client:
        return castor.SentenceTransformer(client).encode(*args, **options)


BOTH = [by_client, by_async_client]
EVERY = [*BOTH, by_drop_in]


def assert_refused(liar, name, args, options, kind: type = castor.WrongAnswerError) -> None:
    for call in EVERY if name == "encode" and not options else BOTH:
        begin = time.monotonic()
        with pytest.raises(kind):
            print(call.__name__, "believed", call(liar, name, args, options))
        assert time.monotonic() - begin < TIMEOUT + 1, call.__name__


def rows(count=2, width=4, shape=None, dtype=1, raw=None, **said: Any) -> Encoded:
    """An honest answer of two texts, but for what is said. dtype: FLOAT32."""
    values = np.arange(count * width, dtype="<f4").tobytes()
    shape = [count, width] if shape is None else shape
    output = Tensor(dtype=dtype, shape=shape, raw=values if raw is None else raw)
    counts = {"lengths": [1] * count, "token_counts": [2] * count, "truncated": [False] * count}
    return Encoded(**{"output": output, **counts, **said})


def tokens(**said: Any) -> Encoded:
    return rows(4, **{"lengths": [1, 3], "token_counts": [1, 3], "truncated": [0, 0], **said})


def spans(*ranges: tuple[int, int], lengths=(2,)) -> Encoded:
    found = [{"begin": begin, "end": end} for begin, end in ranges]
    return rows(2, spans=found, lengths=lengths, token_counts=[5], truncated=[0])


def sparse(indices: list, values: list, lengths: list) -> Encoded:
    found = {"indices": indices, "values": values, "lengths": lengths}
    return Encoded(sparse=found, token_counts=[2, 2], truncated=[0, 0])


def ranked(*found: tuple[int, float], **said: Any) -> encoder_pb2.RerankResponse:
    results = [{"index": n, "score": logit, "logit": logit} for n, logit in found]
    counts = {"token_counts": [2, 2], "truncated": [0, 0]}
    return encoder_pb2.RerankResponse(results=results, **{**counts, **said})


def cut(**said: Any) -> encoder_pb2.TokenizeResponse:
    names = ("ids", "type_ids", "special", "pair", "character_begins", "character_ends")
    honest = {name: [0] * 3 for name in names} | {"lengths": [1, 2], "truncated": [0, 0]}
    return encoder_pb2.TokenizeResponse(**{**honest, **said})


def attended(*shapes: list, dtype: int = 1) -> attention_pb2.AttendResponse:
    made = [Tensor(dtype=dtype, shape=s, raw=b"\0" * 4 * math.prod(s)) for s in shapes]
    return attention_pb2.AttendResponse(**dict(zip(("output", "log_sum_exp"), made)))


TWO = (["a", "b"],)
QUERY = (np.ones((2, 1, 4), np.float32),) * 3
RANGES = {"precision": "int8", "ranges": [[0] * 4, [1] * 4]}
of_two = {"lengths": [1, 1], "token_counts": [2, 2], "truncated": [0, 0]}
MODELS = [{"name": ""}, {"dimensions": -1}, {"vocabulary_size": -1}, {"max_tokens": -1}]
elsewhere = Tensor(dtype=1, shape=[2, 4], shared_memory={"region": "x", "size": 32})

# A method, what it is called with, and answers that do not fit; a Model is what the server has.
LIES: list[tuple[str, tuple, dict, list[Any]]] = [
    ("encode", TWO, {}, [
        *[rows(count) for count in (0, 1, 3)],
        *[rows(count, **of_two) for count in (1, 3)],
        *[rows(shape=shape) for shape in ([], [8], [4, 2], [1, 2, 4], [1] * 7 + [2, 4])],
        *[rows(shape=shape) for shape in ([-1, 4], [-1, -1], [-2, -4], [2, 1 << 40], [HUGE, 4])],
        rows(shape=[2, 0], raw=b""),
        *[rows(raw=b"\0" * size) for size in (31, 33)],
        *[rows(dtype=dtype) for dtype in (0, 99, tensor_pb2.INT32)],
        rows(dtype=tensor_pb2.INT8, raw=b"\0" * 8), rows(dtype=tensor_pb2.FLOAT16, raw=b"\0" * 16),
        rows(dtype=tensor_pb2.INT64, shape=[2, 1], raw=b"\0" * 16),
        *[rows(lengths=lengths) for lengths in ([2, 0], [3, -1])],
        *[rows(token_counts=counts) for counts in ([2], [2, -2], [2, HUGE])],
        rows(truncated=[False] * 3), rows(output=elsewhere), sparse([1, 2], [1, 1], [1, 1]),
        Encoded(), Encoded(**of_two), Encoded(error={}),  # without a code
    ]),
    ("encode", TWO, {"truncate_dim": 3}, [rows(), rows(width=2)]),
    ("encode", TWO, {"precision": "ubinary"}, [rows(), rows(dtype=6, raw=b"\0" * 8)]),
    ("encode", TWO, RANGES, [rows(), rows(dtype=7, raw=b"\0" * 8)]),
    ("encode", TWO, {"precision": "float16"}, [rows(), rows(raw=b"\0" * 16)]),
    ("encode", TWO, {"request_id": "x"}, [rows(request_id="y"), rows()]),
    ("encode_with_report", TWO, {}, [rows(token_counts=[1]), rows(truncated=[])]),
    ("encode_tokens", TWO, {}, [
        *[tokens(lengths=lengths) for lengths in (
            [5, -1], [100, 2], [1], [1, 1, 1, 1], [1, 1], [HUGE, HUGE], [], [2, 2])],
        tokens(token_counts=[1, 2]), rows(2, lengths=[]),
    ]),
    ("encode_spans", ("abc", [(0, 1), (1, 2)]), {}, [
        spans((0, 1), (0, 1), (0, 1)), spans(), spans((2, 1), (2, 1)), spans((-1, 1), (-1, 1)),
        spans((0, 6), (0, 6)), spans((0, 1), (0, 1), lengths=[1]),
        rows(1, spans=[{"begin": 0, "end": 1}] * 2),
    ]),
    ("encode_sparse", TWO, {}, [
        *[sparse([1, 2], [1, 2], lengths) for lengths in ([2, 5], [4, -2])],
        *[sparse([1, 2], values, [1, 1]) for values in ([1], [NAN, 1], [math.inf, 1], [1, -1])],
        *[sparse(indices, [1, 1], [1, 1]) for indices in ([-5, 2], [1, 50])],
        *[sparse(indices, [1, 1], [2, 0]) for indices in ([2, 1], [1, 1])],
        sparse([1], [1], [1]), sparse([1, 2, 3], [1, 1, 1], [1, 1, 1]), rows(),
    ]),
    ("rank", ("q", ["a", "b"]), {}, [
        ranked(), ranked((7, 1)), ranked((-1, 1), (0, 0)), ranked((0, 1), (2, 0)),
        ranked((0, 1), (0, 0.5)), ranked((0, 0.5), (1, 1)), ranked((1, 1), (0, 1)),
        ranked((0, NAN), (1, 1)), ranked((0, 1), (1, 0.5), token_counts=[1]),
        ranked((0, 1), (1, 0.5), truncated=[]),
    ]),
    ("tokenize", TWO, {}, [
        *[cut(lengths=lengths) for lengths in ([5, 5], [5, -2], [3])],
        cut(special=[0]), cut(pair=[0] * 4), cut(type_ids=[]), cut(ids=[-1, 0, 0]),
        cut(character_begins=[1, 2, 3, 4]), cut(character_begins=[1, 2, 3]),
        cut(character_ends=[-1, -1, -1]), cut(truncated=[0]), cut(tokens=["x"] * 3),
        encoder_pb2.TokenizeResponse(),
    ]),
    ("tokenize", TWO, {"return_tokens": True}, [cut(), cut(tokens=["x"] * 2)]),
    ("detokenize", ([[1], [2]],), {}, [
        encoder_pb2.DetokenizeResponse(texts=texts) for texts in ([], ["a"], ["a", "b", "c"])
    ]),
    ("predict", ([("a", "b"), ("c", "d")],), {}, [
        rows(1), rows(shape=[2, 4, 1]), rows(labels=["x"]), rows(2, 1, shape=[2]), tokens(),
        rows(4, **{**of_two, "lengths": [2, 2]}), rows(dtype=tensor_pb2.FLOAT16, raw=b"\0" * 16),
    ]),
    ("attend", QUERY, {}, [
        attended([1, 1, 4]), attended([2, 4]), attended([2, 1, 4], dtype=4), attended(),
    ]),
    ("attend", QUERY, {"return_log_sum_exp": True}, [
        attended([2, 1, 4]), attended([2, 1, 4], [2]), attended([2, 1, 4], [2, 1, 1]),
    ]),
    *[("encode", ([],), options, [
        model_pb2.Model(**{"name": "m", "hidden_size": 4, **said})
        for said in [*MODELS, *({"hidden_size": size} for size in (-4, 0, HUGE))]
    ]) for options in ({}, {"model": "m"})],
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "options", "lie"), [(*row[:3], lie) for row in LIES for lie in row[3]]
)
def test_lies(liar: Liar, name: str, args: tuple, options: dict, lie: Any) -> None:
    if isinstance(lie, model_pb2.Model):
        liar.model = lie
    liar.says = lambda request, context: lie
    assert_refused(liar, name, args, options)


def test_the_honest_are_believed(liar: Liar) -> None:
    liar.says = lambda request, context: rows(error={"code": 3, "message": "no"})
    assert_refused(liar, "encode", TWO, {}, castor.CastorError)
    liar.says = lambda request, context: rows()
    for call in EVERY:
        assert call(liar, "encode", TWO, {}).shape == (2, 4)


@pytest.mark.parametrize("prefix", ["x", "/../../tmp/", "/a/", "/\0", "/" + "a" * 200])
def test_a_key_is_no_path(liar: Liar, prefix: str) -> None:
    limits = {"shared_memory_key_prefix": prefix}
    liar.says = lambda request, context: server_pb2.ServerInfo(limits=limits)
    with castor.Client(liar.target, timeout=TIMEOUT) as client:
        with pytest.raises(castor.WrongAnswerError), client.shared_memory(64):
            pass


def detailed(url: str, value: bytes) -> status_pb2.Status:
    return status_pb2.Status(code=3, message="why", details=[{"type_url": url, "value": value}])


ODD = ("x.ErrorInfo", "DESCRIPTOR", "a.__name__", "a._globals", "a.__doc__", "a._builder", "")
DIGITS = error_details_pb2.BadRequest(field_violations=[{"field": f"texts.texts[{'9' * 30}]"}])
STATUSES: list[tuple[str, Any]] = [
    ("INVALID_ARGUMENT", b"\xff\xff"),
    ("INVALID_ARGUMENT", status(3, "__class__")),
    *[("INVALID_ARGUMENT", detailed(url, b"\x0a\x01z")) for url in ODD],
    ("INVALID_ARGUMENT", detailed("google.rpc.BadRequest", DIGITS.SerializeToString())),
    ("INVALID_ARGUMENT", status(0, "INVALID_FIELD")),  # another code
    ("RESOURCE_EXHAUSTED", status(8, "QUEUE_FULL", HUGE)),
    ("RESOURCE_EXHAUSTED", status(8, "QUEUE_FULL", -5)),
    ("UNAVAILABLE", status(14, "DRAINING", 3600)),
]
full = (8, "QUEUE_FULL", 0.3)
MANY = (["x" * 20_000] * 10,)  # five requests of two texts


@pytest.mark.parametrize(("code", "said"), STATUSES)
def test_statuses(liar: Liar, code: str, said: Any) -> None:
    raw = said if isinstance(said, bytes) else said.SerializeToString()

    def refuse(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", raw),))
        context.abort(grpc.StatusCode[code], "why")

    liar.says = refuse
    assert_refused(liar, "encode", TWO, {}, castor.CastorError)
    liar.streams = lambda requests, context: refuse(next(requests), context)
    assert_refused(liar, "encode", MANY, {}, castor.CastorError)


def each(answer: Callable[[Any], list[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
    return lambda requests, context: (said for request in requests for said in answer(request))


def honest(request: Any, **said: Any) -> Encoded:
    return rows(len(request.texts.texts), **{"request_id": request.request_id, **said})


def error(request: Any, *arguments: Any) -> Encoded:
    return Encoded(request_id=request.request_id, error=status(*arguments))


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
    yield from each(lambda request: [honest(request)])(requests, context)
    yield rows(request_id="4")


FAILED, WRONG, AWAY = castor.CastorError, castor.WrongAnswerError, castor.UnavailableError
STREAMS: dict[str, tuple[type, Callable[[Any, Any], Iterator[Any]]]] = {
    "other counts": (WRONG, each(lambda r: [rows(1 + int(r.request_id), request_id=r.request_id)])),
    "unknown ids": (WRONG, each(lambda r: [honest(r, request_id="99")])),
    "no ids": (WRONG, each(lambda r: [honest(r, request_id="")])),
    "the id before": (WRONG, each(lambda r: [honest(r, request_id=str(int(r.request_id) - 1))])),
    "endless unknown ids": (WRONG, endless),
    "an error without a code": (WRONG, each(lambda r: [error(r, 0)])),
    "an unknown id's error": (WRONG, each(lambda r: [Encoded(request_id="9", error={"code": 3})])),
    "each thrice": (WRONG, each(lambda r: [honest(r)] * 3)),
    "one twice, last": (WRONG, one_more),
    "other widths": (WRONG, each(lambda r: [honest(r, width=4 + int(r.request_id))])),
    "no rows": (WRONG, each(lambda r: [rows(0, request_id=r.request_id)])),
    "nothing but ids": (WRONG, each(lambda r: [Encoded(request_id=r.request_id)])),
    "silence": (castor.DeadlineExceededError, silent),
    "an end at once": (AWAY, lambda requests, context: iter(())),
    "UNAVAILABLE": (AWAY, each(lambda r: [error(r, 14)])),
    "UNAVAILABLE for an hour": (AWAY, each(lambda r: [error(r, 14, "", 3600)])),
    "QUEUE_FULL": (castor.QueueFullError, each(lambda r: [error(r, *full)])),
    "QUEUE_FULL, silence": (FAILED, each(lambda r: [error(r, *full)] * (r.request_id > "0"))),
}


@pytest.mark.parametrize("what", STREAMS)
def test_streams(liar: Liar, what: str) -> None:
    kind, liar.streams = STREAMS[what]
    assert_refused(liar, "encode", MANY, {}, kind)
    assert_refused(liar, "encode_stream", MANY, {}, kind)


def test_a_stream_waits_while_the_queue_is_full(liar: Liar) -> None:
    seen: dict[str, int] = {}

    def answer(request: Any) -> list[Any]:
        seen[request.request_id] = seen.get(request.request_id, 0) + 1
        return [error(request, *full) if seen[request.request_id] < 3 else honest(request)]

    liar.streams = each(answer)
    for call in EVERY:
        seen.clear()
        assert call(liar, "encode", MANY, {}).shape == (10, 4)
        assert max(seen.values()) >= 3


@pytest.mark.parametrize("details", [b"", status(1, "CANCELLED").SerializeToString()])
def test_a_stream_that_breaks_goes_on(liar: Liar, details: bytes) -> None:
    """Every third answer ends the stream, as a server does whose reader has paused."""

    def broken(requests: Any, context: Any) -> Iterator[Any]:
        for count, request in enumerate(requests):
            if count == 2:
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
                context.abort(grpc.StatusCode.CANCELLED, "idle for longer than --transfer-timeout")
            lengths = np.full((len(request.texts.texts), 4), len(request.texts.texts[0]), "<f4")
            yield honest(request, raw=lengths.tobytes())

    liar.streams = broken
    given = ["x" * n for n in range(20_000, 20_020)]
    for call in BOTH:
        got = call(liar, "encode_stream", (given,), {"in_flight": 3})
        assert [int(row[0]) for row in got] == [len(text) // 2 * 2 for text in given]


def test_a_slow_reader_of_messages_does_not_stop_a_writer(liar: Liar) -> None:
    """The server takes a message only when the answer before is taken, through small windows."""
    liar.streams = each(lambda request: [honest(request, width=20_000)])
    for call in BOTH:
        got = call(liar, "encode_stream", (["x" * 30_000] * 300,), {"in_flight": 100})
        assert len(got) == 300


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
    for call in EVERY:
        calls = 0
        with pytest.raises(castor.UnavailableError):
            call(liar, "encode", TWO, {})
        assert calls == 1, call.__name__
