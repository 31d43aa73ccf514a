"""Makes the exceptions of errors.py from the statuses of servers and gRPC."""

from __future__ import annotations

import re
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from castor import errors
from castor.rpc import error_details_pb2, status_pb2

# "INVALID_FIELD": InvalidFieldError, and so on; for codes without a reason too.
_CLASSES = {
    re.sub(r"\B(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).upper(): kind
    for kind in errors.CastorError.__subclasses__()
}
ENDED = "the server ended the stream early"
LATE = "the server does not answer within `timeout`"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def from_status(status: status_pb2.Status) -> errors.CastorError:
    """Reads the details; missing or malformed ones leave their attributes empty."""
    found: dict[str, Any] = {}
    for detail in status.details:
        kind = detail.type_url.rpartition(".")[2]
        if kind not in ("BadRequest", "ErrorInfo", "RequestInfo", "RetryInfo"):
            continue
        try:
            message = getattr(error_details_pb2, kind).FromString(detail.value)
        except DecodeError:
            continue
        if kind == "ErrorInfo":
            found |= {"reason": message.reason, "error_id": message.metadata.get("error_id", "")}
        elif kind == "BadRequest" and message.field_violations:
            found["field"] = message.field_violations[0].field
        elif kind == "RetryInfo":
            delay = message.retry_delay  # may exceed a timedelta
            found["retry_after"] = max(0.0, delay.seconds + delay.nanos / 1e9)
        elif kind == "RequestInfo":
            found["request_id"] = message.request_id
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    known = _CLASSES.get(found.get("reason") or code.name, errors.CastorError)
    return known(status.message, code=code, **found)


def blame(error: errors.CastorError, start: int) -> None:
    """Sets the error's index, for a request whose first input is the call's number `start`."""
    named = re.match(r"(?:texts\.\w+|documents)\[(\d{1,9})\]", error.field)
    error.index = start + (int(named[1]) if named else 0)


def from_rpc(call: Any) -> errors.CastorError:
    """The error for an exception of grpc or grpc.aio."""
    code = call.code() or grpc.StatusCode.UNKNOWN
    trailers = dict([*(call.trailing_metadata() or ())])  # grpc.aio's own is a poor mapping
    status = status_pb2.Status()
    try:
        status.ParseFromString(trailers.get("grpc-status-details-bin") or b"")
    except (DecodeError, TypeError):
        status.Clear()
    status.code = code.value[0]
    status.message = status.message or call.details() or ""
    error = from_status(status)
    if pushback := trailers.get("grpc-retry-pushback-ms"):  # as gRPC's own retries read it
        known = re.fullmatch(r"\d{1,10}", str(pushback))
        error.retry_after = int(known[0]) / 1000 if known else error.retry_after
        error.final = not known
    return error
