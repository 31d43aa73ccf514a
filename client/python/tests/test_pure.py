"""What needs no server: requests, answers, errors, windows, targets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import castor
from castor import channel, kernels, reports, tensors, texts
from castor.rpc import error_details_pb2, status_pb2
from castor.session import Session, Stream, finish
from castor.status import LATE
from castor.status import from_status as status_of
from castor.v1 import attention_pb2, encoder_pb2, kernel_pb2, tensor_pb2


def status(code: int, reason: str = "", retry: float | None = None) -> status_pb2.Status:
    made = status_pb2.Status(code=code, message="why")
    details = []
    if reason:
        info = {"error_id": "e1"}
        details.append(error_details_pb2.ErrorInfo(reason=reason, domain="castor", metadata=info))
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field="query.shape[2]")
        details += [bad, error_details_pb2.RequestInfo(request_id="r1")]
    if retry is not None:
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(round(retry * 1000))
        details.append(info)
    for detail in details:
        name = "type.googleapis.com/google.rpc." + detail.DESCRIPTOR.name
        made.details.add(type_url=name, value=detail.SerializeToString())
    return made


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (3, "INVALID_FIELD", castor.InvalidFieldError),
        (5, "REGION_NOT_FOUND", castor.RegionNotFoundError),
        (8, "QUEUE_FULL", castor.QueueFullError),
        (14, "DRAINING", castor.DrainingError),
        (14, "", castor.UnavailableError),
        (16, "UNAUTHENTICATED", castor.UnauthenticatedError),
        (3, "OF_A_LATER_SERVER", castor.CastorError),
    ],
)
def test_errors_are_classes_by_reason(code: int, reason: str, kind: type) -> None:
    error = status_of(status(code, reason, 0.25))
    assert type(error) is kind and error.code.value[0] == code and error.retry_after == 0.25
    assert error.reason == reason and error.message == "why"
    if reason:
        assert (error.field, error.request_id) == ("query.shape[2]", "r1")
        assert error.error_id == "e1" and str(error) == f"{reason} at query.shape[2]: why"


def test_every_reason_of_the_contract_has_a_class() -> None:
    from conftest import ROOT

    table = (ROOT / "proto/README.md").read_text().split("## Errors")[1].split("\nRetry only")[0]
    reasons = {row.split("|")[2].strip(" `") for row in table.splitlines() if row.startswith("|")}
    assert len(reasons) > 15
    for reason in reasons - {"reason", "---"}:
        assert type(status_of(status(2, reason))) is not castor.CastorError, reason


def test_malformed_details_leave_the_code() -> None:
    made = status(3, "INVALID_FIELD")
    made.details[0].value = b"\xff\xff"
    error = status_of(made)
    assert error.reason == "" and error.code == grpc.StatusCode.INVALID_ARGUMENT


def test_kernels_are_put_and_read() -> None:
    kernel = castor.ImprovedClustered(clusters=7, hash_bias=False, clustering="query_space")
    request = encoder_pb2.EncodeRequest()
    kernels.put(request, kernel)
    put = request.improved_clustered
    assert put.clusters == 7 and put.clustering == kernel_pb2.QUERY_SPACE
    assert put.HasField("hash_bias") and not put.hash_bias
    kernels.put(request, castor.Clustered())
    assert request.WhichOneof("kernel") == "clustered" and not request.clustered.HasField(
        "hash_bias"
    )
    kernels.put(request, castor.Automatic(0.1, ["vanilla", "clustered"]))
    assert list(request.automatic.allowed) == [kernel_pb2.VANILLA, kernel_pb2.CLUSTERED]
    gate = np.ones(3, np.float32)
    kernels.put(request, castor.Cast(layer="m/0", gate=gate))
    assert request.cast.gate.shape == [3] and request.cast.layer == "m/0"
    kernels.put(request, castor.Automatic(allowed="vanilla"))
    assert list(request.automatic.allowed) == [kernel_pb2.VANILLA]
    with pytest.raises(ValueError, match="clustering 'x' is not one of hash, query_space"):
        kernels.put(request, castor.Clustered(clustering="x"))
    with pytest.raises(ValueError, match="kernel 'fast' is not one of vanilla"):
        kernels.put(request, "fast")
    with pytest.raises(TypeError, match="kernel is int"):
        kernels.put(request, 3)  # type: ignore[arg-type]


def test_kernels_of_later_servers_are_no_error() -> None:
    later = {"name": 99, "clustered": {"clustering": 99}}
    found = reports.read(encoder_pb2.EncodeResponse(kernel=later))  # type: ignore[arg-type]
    assert found.kernel_name == "99" and found.kernel.clustering == "99"


def test_tensors_keep_values_and_order() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (values, values.transpose(2, 0, 1), values[:, ::2], values.astype(">f4")):
        made = tensors.to_message("query", array)
        assert np.array_equal(tensors.from_message(made), array)
    half = tensors.to_message("query", values.astype(np.float16))
    assert half.dtype == tensor_pb2.FLOAT16 and len(half.raw) == 48
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    made = tensor_pb2.Tensor(dtype=tensor_pb2.BFLOAT16, shape=bits.shape, raw=bits.tobytes())
    assert np.array_equal(tensors.from_message(made), values)
    for wrong in (values.astype(np.float64), [1, 2], np.array(["a"])):
        with pytest.raises(TypeError, match=r"query is .*use float32"):
            tensors.to_message("query", wrong)


def test_elements_set_apart_are_where_the_message_has_them() -> None:
    random, apart = np.random.default_rng(3), dict[str, Any]()
    values = random.standard_normal((2, 3, 70, 100))
    given = {"query": values[0], "key": values.astype(np.float16), "value": values[1, :, ::2]}
    given["query"], given["value"] = (given[n].astype(np.float32) for n in ("query", "value"))
    tensor = {n: tensors.to_message(n, x, apart=apart) for n, x in given.items()}
    request = attention_pb2.AttendRequest(request_id="r", **tensor)
    assert list(apart) == ["query", "key", "value"] and len(request.SerializeToString()) < 100
    whole = {n: tensors.to_message(n, x) for n, x in given.items()}
    made = attention_pb2.AttendRequest.FromString(tensors.to_wire(request, apart))
    assert made == attention_pb2.AttendRequest(request_id="r", **whole)
    apart["key"] = np.empty(2**31, np.uint8)  # no byte of it is touched
    with pytest.raises(ValueError, match=r"query, key, value take 2,147"):
        tensors.to_wire(request, apart)


def test_merge_is_attention_over_all_keys() -> None:
    random = np.random.default_rng(1)
    query, key, value = (random.standard_normal((9, 2, 4)) for _ in range(3))

    def attend(keys: slice) -> tuple[np.ndarray, np.ndarray]:
        scores = np.einsum("qhd,khd->qhk", query, key[keys])
        total = np.exp(scores).sum(-1)
        weights = np.exp(scores) / total[..., None]
        return np.einsum("qhk,khd->qhd", weights, value[keys]), np.log(total)

    parts = [attend(slice(0, 2)), attend(slice(2, 3)), attend(slice(3, 9))]
    for empty in (-np.inf, np.inf):  # flash-attn 2 has +Inf
        nothing = np.full_like(parts[0][0], np.nan), np.full((9, 2), empty)
        output, logs = castor.merge(*zip(*parts, nothing))
        assert abs(output - attend(slice(0, 9))[0]).max() < 1e-6
        assert abs(logs - attend(slice(0, 9))[1]).max() < 1e-5
        output, logs = castor.merge(*zip(nothing, nothing))
        assert not output.any() and np.isneginf(logs).all()
    unknown = np.zeros_like(parts[0][0]), np.full((9, 2), np.nan)
    for merged in (castor.merge(*zip(*parts, unknown)), castor.merge(*zip(nothing, unknown))):
        assert np.isnan(merged[0]).all() and np.isnan(merged[1]).all()
    with pytest.raises(ValueError, match="part 1: output"):
        castor.merge([output, output[:3]], [logs, logs[:3]])
    with pytest.raises(ValueError, match="0 outputs"):
        castor.merge([], [])


def pack(given: Any) -> list[tuple[list, int]]:
    async def packed() -> list[tuple[list, int]]:
        requests = texts.pack(texts.each(given), encoder_pb2.EncodeRequest, {})
        return [(list(request.texts.texts), start) async for request, start in requests]

    return finish(packed())


def test_texts_are_packed_within_bounds() -> None:
    given = ["x" * (i % 700) for i in range(5000)]
    packed = pack(iter(given))
    batches = [batch for batch, _ in packed]
    assert [text for batch in batches for text in batch] == given
    assert all(given[start : start + len(batch)] == batch for batch, start in packed)
    assert max(map(len, batches)) <= texts.MOST_TEXTS
    assert max(sum(map(len, b[:-1])) for b in batches) < texts.MOST_CHARACTERS
    for wrong in (["a", None], ["a", b"b"], [("a", "b", "c")], [()]):
        with pytest.raises(TypeError, match=r"texts\[\d\]"):
            pack(wrong)


class Script(Session):
    """A call whose stream answers with what `says` makes of the requests that wait."""

    def __init__(self, says: Callable[[list], Any], timeout: float = 2, busy: bool = True) -> None:
        super().__init__(castor.Client(), timeout, busy)
        self.says, self.waiting, self.slept, self.most = says, list[Any](), list[float](), 0

    def open(self, name: str, ready: bool) -> None:
        self.waiting.clear()

    def send(self, request: Any) -> None:
        self.waiting.append(request)
        self.most = max(self.most, len(self.waiting))

    async def read(self, seconds: float) -> Any:
        assert self.waiting and seconds <= 2.2
        return self.says(self.waiting)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def end(self) -> None:
        assert not self.waiting


def answer(request: encoder_pb2.EncodeRequest, error: status_pb2.Status | None = None) -> Any:
    if error:
        return encoder_pb2.EncodeResponse(request_id=request.request_id, error=error)
    output = tensors.to_message("output", np.ones((1, 2), np.float32))
    counts = {"lengths": [1], "token_counts": [3], "truncated": [False]}
    return encoder_pb2.EncodeResponse(request_id=request.request_id, output=output, **counts)


def stream(says: Callable[[list], Any]) -> tuple[list[list[str]], Script]:
    """The ids of nine requests' answers as they come, three requests in flight."""
    wire = Script(says)
    options = {"output": "pooled"}
    requests = [
        (texts.request(encoder_pb2.EncodeRequest, ["a"], 0, options), 256 * n) for n in range(9)
    ]
    made = Stream(wire, texts.each(requests), 3)
    got: list[list[str]] = []
    while found := finish(made.next()):
        got.append([each.request_id for each in found])
    assert all(request.timeout_ms == 2000 for request, _ in requests)
    return got, wire


def test_a_stream_restores_order_and_is_bounded() -> None:
    got, wire = stream(lambda waiting: answer(waiting.pop()))  # the last one first
    assert sum(got, []) == [*"012345678"] and max(map(len, got)) == wire.most == 3
    with pytest.raises(castor.WrongAnswerError, match="no request waits"):
        stream(lambda waiting: answer(waiting[-1]))  # again and again


def test_a_stream_sends_refused_requests_again() -> None:
    full, refused = status(8, "QUEUE_FULL", 0.1), set[str]()

    def says(waiting: list, at: int = -1) -> Any:
        request = waiting.pop(at)
        again = request.request_id in refused
        refused.add(request.request_id)
        return answer(request, None if again or request.request_id == "0" else full)

    got, wire = stream(says)
    assert sum(got, []) == [*"012345678"] and len(refused) == 9
    assert wire.slept and all(0.1 <= each < 0.2 for each in wire.slept)  # all were refused
    hopeless = status(8, "QUEUE_FULL", 3)
    with pytest.raises(castor.QueueFullError) as caught:
        stream(lambda w: answer(w.pop(0), None if w and w[0].request_id != "2" else hopeless))
    assert caught.value.index == 256


def test_a_call_ends_with_its_time() -> None:
    def session(timeout: float, busy: bool = False) -> Session:
        return Session(castor.Client(), timeout, busy)

    one, away = session(0.5), status_of(status(14))
    delays = [one.delay(away) for _ in range(3)]
    assert 0.05 <= delays[0] <= 0.1 and max(delays) <= 0.25
    with pytest.raises(castor.UnavailableError):
        one.delay(castor.DeadlineExceededError(LATE))  # while it waited for a connection
    for hopeless in (status(14, "DRAINING", 3600), status(14, "DRAINING", 2.0**40), status(8)):
        with pytest.raises(castor.CastorError):
            session(5).delay(status_of(hopeless))
    busy = status_of(status(8, "QUEUE_FULL", 0.2))
    with pytest.raises(castor.QueueFullError):
        session(5).delay(busy)
    assert 0.2 <= session(5, busy=True).delay(busy) < 0.3
    for code, repeated in ((14, False), (1, False), (14, True)):
        error = status_of(status(code, "DRAINING" if repeated else ""))
        if repeated:
            assert session(5).delay(error, repeatable=False) > 0
        else:
            with pytest.raises(castor.CastorError):
                session(5).delay(error, repeatable=False)
    assert session(5).delay(status_of(status(1, "CANCELLED")), resumable=True) > 0
    time.sleep(0.5)
    with pytest.raises(castor.UnavailableError):
        one.delay(away)


@pytest.mark.parametrize(
    "options",
    [
        {"target": 50051},
        {"target": ""},
        {"timeout": 0},
        {"timeout": None},
        {"timeout": float("inf")},
        {"tenant": "ä"},
    ],
    ids=str,
)
def test_a_client_refuses(options: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(options))) as caught:
        castor.Client(**options)
    assert "secret" not in str(caught.value)


def test_a_token_is_checked_and_not_shown() -> None:
    with castor.Client(token="secret\n") as client:
        with pytest.raises(ValueError, match="token has other characters") as caught:
            client.encode("a")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "own"),
    [
        ("127.0.0.1:50051", True),
        ("localhost", True),
        ("unix:/run/castor", True),
        ("dns:///localhost:1", True),
        ("dns://8.8.8.8/localhost:1", False),
        ("[::1]:50051", True),
        ("ipv4:127.0.0.1:1,127.0.0.2:1", True),
        ("ipv4:127.0.0.1:1,192.0.2.7:1", False),
        ("castor:50051", False),
        ("192.0.2.7:50051", False),
    ],
)
def test_which_targets_are_this_machine(target: str, own: bool) -> None:
    assert channel.is_local(target) == own
    if not own:
        with pytest.raises(ValueError, match="a token is not sent"):
            castor.Client(target, token="secret")
        castor.Client(target, token="secret", allow_plaintext_token=True)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_quantize_refuses_what_has_no_ranges(precision: str) -> None:
    rows = np.random.default_rng(1).standard_normal((5, 12)).astype(np.float32)
    assert castor.quantize(rows, precision).dtype.itemsize == 1
    if precision.endswith("int8"):
        with pytest.raises(ValueError, match="needs ranges"):
            castor.quantize(rows[:1], precision)
    with pytest.raises(ValueError, match="precision 'int4'"):
        castor.quantize(rows, "int4")
