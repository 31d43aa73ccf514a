"""The requests of a stream that are in flight: what to send, and which answers are next. Pure."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import grpc

from castor import channel, errors
from castor.rpc import status_pb2

IN_FLIGHT = 8  # requests of a call that has several
GRACE = 5.0  # seconds beyond a message's deadline, after which a stream's server is taken for hung


class _Slot:
    def __init__(self, request: Any, start: int) -> None:
        self.request, self.start, self.answer, self.refused = request, start, None, False


class Window:
    """At most `size` requests, with those answers that came before their turn.

    A request refused for load is sent again when another one has been answered. If there is none,
    that is the stream's error. Requests without an answer may be sent again over another call.
    """

    def __init__(self, size: int, timeout: float, ordered: bool = True) -> None:
        if size < 1:
            raise ValueError(f"in_flight is {size}, not at least 1")
        self._size, self._ordered = size, ordered
        self._timeout_ms = max(1, round(timeout * 1000))
        self._slots: deque[_Slot] = deque()
        self._count = self._failures = 0

    @property
    def full(self) -> bool:
        return len(self._slots) >= self._size

    @property
    def empty(self) -> bool:
        return not self._slots

    def add(self, request: Any, start: int) -> Any:
        """The request as it is to be sent; `start`: the number of its first input."""
        request.request_id = str(self._count)
        request.timeout_ms = request.timeout_ms or self._timeout_ms
        self._count += 1
        self._slots.append(_Slot(request, start))
        return request

    def unanswered(self) -> list[Any]:
        """To be sent over a new call."""
        for slot in self._slots:
            slot.refused = False
        return [slot.request for slot in self._slots if slot.answer is None]

    def take(self, answer: Any) -> list[Any]:
        """What is to be sent again now. Raises the error of a request, or UNAVAILABLE."""
        ids = (slot for slot in self._slots if slot.request.request_id == answer.request_id)
        slot = next(ids, None)
        error = errors.from_status(answer.error) if answer.HasField("error") else None
        if error and slot:
            errors.of_input(error, slot.start)
            waits = any(s.answer is None and not s.refused and s is not slot for s in self._slots)
            if error.retry_after and waits:
                slot.refused = True
                return []
        if error:
            raise error
        if slot is None or slot.answer is not None:
            return []  # of an earlier call
        slot.answer, self._failures = answer, 0
        again = [slot for slot in self._slots if slot.refused]
        for slot in again:
            slot.refused = False
        return [slot.request for slot in again]

    def ready(self) -> list[Any]:
        """The answers whose turn it is, which leave the window."""
        found = []
        if not self._ordered:
            found = [slot.answer for slot in self._slots if slot.answer is not None]
            self._slots = deque(slot for slot in self._slots if slot.answer is None)
        while self._slots and self._slots[0].answer is not None:
            found.append(self._slots.popleft().answer)
        return found

    def after(self, error: errors.CastorError) -> float:
        """Seconds until the next call, if there is a use in one; else raises the error."""
        self._failures += 1
        unavailable = error.code == grpc.StatusCode.UNAVAILABLE
        if not unavailable or self._failures >= channel.ATTEMPTS:
            if error.index is None and self._slots:
                error.index = next(slot.start for slot in self._slots if slot.answer is None)
            raise error
        backoff = min(channel.MOST_BACKOFF, channel.FIRST_BACKOFF * 2 ** (self._failures - 1))
        return max(float(backoff) * (0.5 + random.random() / 2), error.retry_after or 0)


def ended_early() -> errors.CastorError:
    status = status_pb2.Status(code=14, message="the server ended the stream early")
    return errors.from_status(status)
