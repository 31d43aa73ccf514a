"""Exceptions: one class for each reason of proto/README.md's list.

Every public name here is an exception, or the warning, and castor re-exports all of them.
"""

from typing import Any as _Any

from grpc import StatusCode as _StatusCode


class CastorError(Exception):
    """A call that failed.

    `reason` is empty when castor-server did not send one: the error then comes from gRPC or a
    proxy, and does not say whether the call was run.
    """

    code: _StatusCode = _StatusCode.UNKNOWN
    reason: str = ""
    field: str = ""  # the path of the field to blame, such as "query.shape[2]"
    message: str = ""
    retry_after: float | None = None  # seconds, if a later retry makes sense
    request_id: str = ""
    error_id: str = ""  # of an INTERNAL error: the server's log has it too
    index: int | None = None  # of many inputs: the one to blame, or its request's first
    final: bool = False  # the server asks for no retry

    def __init_subclass__(cls, code: _StatusCode | None = None) -> None:
        cls.code = code or cls.code

    def __init__(self, message: str = "", **found: _Any) -> None:
        super().__init__(message)
        vars(self).update(found, message=message)

    def __str__(self) -> str:
        named = not self.field or self.message.startswith(self.field)
        where = "" if named else f" at {self.field}"
        which = f" (input {self.index})" if self.index is not None else ""
        return f"{self.reason or self.code.name}{where}: {self.message}{which}"


# A table, in the order of proto/README.md's. The code is that of errors which this side finds.
# fmt: off
class InvalidFieldError(CastorError, ValueError, code=_StatusCode.INVALID_ARGUMENT): ...
class MalformedMessageError(CastorError, ValueError): ...
class NonFiniteInputError(CastorError, ValueError): ...
class ModelNotFoundError(CastorError, LookupError, code=_StatusCode.NOT_FOUND): ...
class RegionNotFoundError(CastorError, LookupError): ...
class KernelNotAvailableError(CastorError): ...
class ModelControlOffError(CastorError): ...
class ModelFailedError(CastorError): ...
class RegionExistsError(CastorError): ...
class SharedMemoryOffError(CastorError): ...
class QueueFullError(CastorError): ...
class TooLargeError(CastorError, ValueError): ...
class OutOfMemoryError(CastorError, MemoryError): ...
class TooManyRegionsError(CastorError): ...
class DeadlineExceededError(CastorError, TimeoutError, code=_StatusCode.DEADLINE_EXCEEDED): ...
class CancelledError(CastorError): ...
class DrainingError(CastorError, ConnectionError): ...
class ModelLoadingError(CastorError, ConnectionError): ...
class NotServedError(CastorError, NotImplementedError): ...
class UnauthenticatedError(CastorError, PermissionError): ...
class PermissionDeniedError(CastorError, PermissionError): ...
class InternalError(CastorError): ...
# fmt: on


class UnavailableError(CastorError, ConnectionError, code=_StatusCode.UNAVAILABLE):
    """No server answered (gRPC's error, without a reason)."""


class WrongAnswerError(CastorError, code=_StatusCode.DATA_LOSS):
    """The server's answer does not fit the request (found by this side, without a reason)."""


class TruncationWarning(UserWarning):
    """Texts were cut. truncate=True allows that, truncate=False has such texts refused."""
