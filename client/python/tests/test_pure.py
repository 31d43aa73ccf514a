"""What needs no server: requests, answers, errors, windows, targets."""

from __future__ import annotations

import time

import grpc
import numpy as np
import pytest

import castor
from castor import channel, errors, kernels, tensors, texts
from castor.answers import Checker
from castor.rpc import error_details_pb2, status_pb2
from castor.v1 import encoder_pb2, kernel_pb2, tensor_pb2
from castor.window import Patience, Window


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
    error = errors.from_status(status(code, reason, 0.25))
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
        assert type(errors.from_status(status(2, reason))) is not castor.CastorError, reason


def test_malformed_details_leave_the_code() -> None:
    made = status(3, "INVALID_FIELD")
    made.details[0].value = b"\xff\xff"
    error = errors.from_status(made)
    assert error.reason == "" and error.code == grpc.StatusCode.INVALID_ARGUMENT


def test_kernels_are_put_and_read() -> None:
    kernel = castor.ImprovedClustered(clusters=7, hash_bias=False, clustering="query_space")
    request = encoder_pb2.EncodeRequest()
    kernels.put(request, kernel, tensors.to_message)
    put = request.improved_clustered
    assert put.clusters == 7 and put.clustering == kernel_pb2.QUERY_SPACE
    assert put.HasField("hash_bias") and not put.hash_bias
    kernels.put(request, castor.Clustered(), tensors.to_message)
    assert request.WhichOneof("kernel") == "clustered" and not request.clustered.HasField(
        "hash_bias"
    )
    kernels.put(request, castor.Automatic(0.1, ["vanilla", "clustered"]), tensors.to_message)
    assert list(request.automatic.allowed) == [kernel_pb2.VANILLA, kernel_pb2.CLUSTERED]
    gate = np.ones(3, np.float32)
    kernels.put(request, castor.Cast(layer="m/0", gate=gate), tensors.to_message)
    assert request.cast.gate.shape == [3] and request.cast.layer == "m/0"
    kernels.put(request, castor.Automatic(allowed="vanilla"), tensors.to_message)
    assert list(request.automatic.allowed) == [kernel_pb2.VANILLA]
    with pytest.raises(ValueError, match="clustering 'x' is not one of hash, query_space"):
        kernels.put(request, castor.Clustered(clustering="x"), tensors.to_message)
    with pytest.raises(ValueError, match="kernel 'fast' is not one of vanilla"):
        kernels.put(request, "fast", tensors.to_message)
    with pytest.raises(TypeError, match="kernel is int"):
        kernels.put(request, 3, tensors.to_message)  # type: ignore[arg-type]


def test_tensors_keep_values_and_order() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (values, values.transpose(2, 0, 1), values[:, ::2], values.astype(">f4")):
        message = tensors.to_message("query", array)
        assert np.array_equal(tensors.from_message(message), array)
    half = tensors.to_message("query", values.astype(np.float16))
    assert half.dtype == tensor_pb2.FLOAT16 and len(half.raw) == 48
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    message = tensor_pb2.Tensor(dtype=tensor_pb2.BFLOAT16, shape=bits.shape, raw=bits.tobytes())
    assert np.array_equal(tensors.from_message(message), values)
    for wrong in (values.astype(np.float64), [1, 2], np.array(["a"])):
        with pytest.raises(TypeError, match=r"query is .*use float32"):
            tensors.to_message("query", wrong)


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


def test_texts_are_packed_within_bounds() -> None:
    given = ["x" * (i % 700) for i in range(5000)]
    packed = list(texts.pack(iter(given)))
    batches = [batch for batch, _ in packed]
    assert [text for batch in batches for text in batch] == given
    assert all(given[start : start + len(batch)] == batch for batch, start in packed)
    assert max(map(len, batches)) <= texts.MOST_TEXTS
    assert max(sum(map(len, b[:-1])) for b in batches) < texts.MOST_CHARACTERS
    for wrong in (["a", None], ["a", b"b"], [("a", "b", "c")], [()]):
        with pytest.raises(TypeError, match=r"texts\[\d\]"):
            list(texts.pack(wrong))  # type: ignore[arg-type]


def make(size: int = 3, timeout: float = 2, ordered: bool = True) -> Window:
    return Window("", size, Patience(timeout, busy=True), Checker(), ordered)


def asked(window: Window, count: int) -> list[encoder_pb2.EncodeRequest]:
    for number in range(count):
        request = texts.encode_request(["a"], 0, "pooled", {})
        window.add(request, 256 * number)
    return window.unsent()


def answer(request: encoder_pb2.EncodeRequest, error: status_pb2.Status | None = None):
    if error:
        return encoder_pb2.EncodeResponse(request_id=request.request_id, error=error)
    output = tensors.to_message("output", np.ones((1, 2), np.float32))
    counts = {"lengths": [1], "token_counts": [3], "truncated": [False]}
    return encoder_pb2.EncodeResponse(request_id=request.request_id, output=output, **counts)


def test_a_window_restores_order_and_is_bounded() -> None:
    window = make()
    sent = asked(window, 3)
    assert sent[0].timeout_ms == 2000 and window.unsent() == []
    window.take(answer(sent[2]))
    assert window.ready() == []
    window.take(answer(sent[0]))
    assert [each.request_id for each in window.ready()] == ["0"]
    for again in (sent[0], sent[2]):
        with pytest.raises(castor.WrongAnswerError, match="no request waits"):
            window.take(answer(again))
    window.take(answer(sent[1]))
    assert [each.request_id for each in window.ready()] == ["1", "2"]
    loose = make(ordered=False)
    sent = asked(loose, 3)
    loose.take(answer(sent[2]))
    assert [each.request_id for each in loose.ready()] == ["2"]


def test_a_window_sends_refused_requests_again() -> None:
    window = make(2)
    first, second = asked(window, 2)
    window.take(answer(second, status(4, "DEADLINE_EXCEEDED", 0.1)))
    assert window.unsent() == []
    window.take(answer(first))
    assert window.unsent() == [second]
    window.take(answer(second, status(8, "QUEUE_FULL", 0.1)))  # nothing else is in flight
    assert 0.1 <= window._wait < 0.2
    window._renew("refused")
    assert window.unsent() == [second]
    with pytest.raises(castor.QueueFullError) as caught:
        window.take(answer(second, status(8, "QUEUE_FULL", 3)))
    assert caught.value.index == 256


def test_patience_ends_with_its_time() -> None:
    patience = Patience(0.5)
    away = errors.from_status(status(14))
    delays = [patience.after(away) for _ in range(3)]
    assert 0.05 <= delays[0] <= 0.1 and max(delays) <= 0.25
    with pytest.raises(castor.UnavailableError):
        patience.after(errors.late())  # while it waited for a connection
    for hopeless in (status(14, "DRAINING", 3600), status(14, "DRAINING", 2.0**40), status(8)):
        with pytest.raises(castor.CastorError):
            Patience(5).after(errors.from_status(hopeless))
    busy = errors.from_status(status(8, "QUEUE_FULL", 0.2))
    with pytest.raises(castor.QueueFullError):
        Patience(5).after(busy)
    assert 0.2 <= Patience(5, busy=True).after(busy) < 0.3
    time.sleep(0.5)
    with pytest.raises(castor.UnavailableError):
        patience.after(away)


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
    assert channel.is_on_this_machine(target) == own
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
