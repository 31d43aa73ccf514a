"""What the server refuses, as exceptions: one class for each reason of proto/README.md's list."""

from __future__ import annotations

import re
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from castor.rpc import error_details_pb2, status_pb2


class CastorError(Exception):
    """A call that failed.

    `reason` is empty when castor-server did not send one: the error then comes from gRPC or from
    something in between, and does not say whether the call was run.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    reason: str = ""
    field: str = ""  # the path of the field to blame, such as "query.shape[2]"
    message: str = ""
    retry_after: float | None = None  # seconds, if a later retry makes sense
    request_id: str = ""
    error_id: str = ""  # of an INTERNAL error: the server's log has it too
    index: int | None = None  # of many inputs: the one to blame, or its request's first
    final: bool = False  # the server asks for no retry

    def __str__(self) -> str:
        named = not self.field or self.message.startswith(self.field)
        where = "" if named else f" at {self.field}"
        which = f" (input {self.index})" if self.index is not None else ""
        return f"{self.reason or self.code.name}{where}: {self.message}{which}"


class InvalidFieldError(CastorError, ValueError): ...


class MalformedMessageError(CastorError, ValueError): ...


class NonFiniteInputError(CastorError, ValueError): ...


class ModelNotFoundError(CastorError, LookupError): ...


class RegionNotFoundError(CastorError, LookupError): ...


class KernelNotAvailableError(CastorError): ...


class ModelControlOffError(CastorError): ...


class RegionExistsError(CastorError): ...


class SharedMemoryOffError(CastorError): ...


class QueueFullError(CastorError): ...


class TooLargeError(CastorError, ValueError): ...


class OutOfMemoryError(CastorError, MemoryError): ...


class TooManyRegionsError(CastorError): ...


class DeadlineExceededError(CastorError, TimeoutError): ...


class CancelledError(CastorError): ...


class DrainingError(CastorError, ConnectionError): ...


class UnavailableError(CastorError, ConnectionError):
    """Nobody answered: of gRPC, without a reason."""


class NotServedError(CastorError, NotImplementedError): ...


class UnauthenticatedError(CastorError, PermissionError): ...


class PermissionDeniedError(CastorError, PermissionError): ...


class InternalError(CastorError): ...


class WrongAnswerError(CastorError):
    """The server's answer does not fit the request: of this side, without a reason."""


class TruncationWarning(UserWarning):
    """Texts were cut. To say that it is meant, or to have them refused, use `truncate`."""


# "INVALID_FIELD": InvalidFieldError, and so on. UNAVAILABLE is a code, as some others are too.
_CLASSES = {
    "".join("_" + c if c.isupper() else c.upper() for c in kind.__name__[: -len("Error")])[1:]: kind
    for kind in CastorError.__subclasses__()
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS: dict[str, Any] = {
    kind.DESCRIPTOR.name: kind
    for kind in vars(error_details_pb2).values()
    if isinstance(kind, type) and issubclass(kind, Message)
}


def from_status(status: status_pb2.Status) -> CastorError:
    """Reads the details; what is missing or malformed leaves its attributes empty."""
    found: dict[str, Any] = {}
    for detail in status.details:
        kind = _DETAILS.get(detail.type_url.rpartition(".")[2])
        if kind is None:
            continue
        try:
            message = kind.FromString(detail.value)
        except DecodeError:
            continue
        if kind is error_details_pb2.ErrorInfo:
            found |= {"reason": message.reason, "error_id": message.metadata.get("error_id", "")}
        elif kind is error_details_pb2.BadRequest and message.field_violations:
            found["field"] = message.field_violations[0].field
        elif kind is error_details_pb2.RetryInfo:
            delay = message.retry_delay  # of any size: not as a timedelta
            found["retry_after"] = max(0.0, delay.seconds + delay.nanos / 1e9)
        elif kind is error_details_pb2.RequestInfo:
            found["request_id"] = message.request_id
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    error = _CLASSES.get(found.get("reason") or code.name, CastorError)(status.message)
    vars(error).update(found, code=code, message=status.message)
    return error


def of_input(error: CastorError, start: int) -> CastorError:
    """Of a request of many, whose first input is number `start` of the call's."""
    named = re.match(r"(?:texts\.\w+|documents)\[(\d{1,9})\]", error.field)
    error.index = start + (int(named[1]) if named else 0)
    return error


def from_rpc(call: Any) -> CastorError:
    """From what a failed call of grpc or grpc.aio raises."""
    code = call.code() or grpc.StatusCode.UNKNOWN
    trailers = dict([*(call.trailing_metadata() or ())])  # grpc.aio's own is a poor mapping
    status = status_pb2.Status(message=call.details() or "")
    try:
        status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin") or b"")
    except (DecodeError, TypeError):
        pass
    status.code = code.value[0]
    status.message = status.message or call.details() or ""
    error = from_status(status)
    if pushback := trailers.get("grpc-retry-pushback-ms"):  # as gRPC's own retries read it
        known = re.fullmatch(r"\d{1,10}", str(pushback))
        error.retry_after = int(known[0]) / 1000 if known else error.retry_after
        error.final = not known
    return error


def of_client(kind: type[CastorError], code: int, message: str, **found: Any) -> CastorError:
    """An error that this side finds."""
    error = kind(message)
    vars(error).update(found, code=_CODES[code], message=message)
    return error


def wrong(what: str) -> CastorError:
    return of_client(WrongAnswerError, 15, f"the answer does not fit the request: {what}")


def late() -> CastorError:
    return of_client(DeadlineExceededError, 4, "the server does not answer within `timeout`")


def ended_early() -> CastorError:
    return of_client(UnavailableError, 14, "the server ended the stream early")
