"""What a call does next: attempts, waits, the requests of a stream. Pure but for the clock.

Calls are generators of steps, which client.py and aio.py take each in its own way. What a step
comes to is sent back, and its CastorError thrown. The steps: "call" a method; "open" a stream in
place of the one before, "send" and "read" a message, and "end" it; "pull" the caller's source,
"give" to the caller; "sleep".
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from castor import channel, errors
from castor.answers import Checker, must

if TYPE_CHECKING:
    from castor.requests import Call

IN_FLIGHT = 8  # requests of a call that has several
GRACE = 0.2  # seconds, in which a server's own word that time is up comes first

Steps = Generator[tuple[str, Any], Any, Any]


class Patience:
    """The time of a call: `timeout` seconds in all, of many requests since the last answer.

    A call that is `busy`, with many requests, also waits where the server has no room for it.
    """

    def __init__(self, timeout: float, busy: bool = False) -> None:
        self.timeout, self.busy = timeout, busy
        self.renew()

    def renew(self) -> None:
        self._ends = time.monotonic() + self.timeout
        self.forget()

    def forget(self) -> None:
        self.failures = 0
        self._before: errors.CastorError | None = None

    @property
    def left(self) -> float:
        return max(self._ends - time.monotonic(), 0.001)

    def after(self, error: errors.CastorError, again: bool = False) -> float:
        """Seconds until the next attempt, if there is a use in one; else raises the error.

        `again`: whether to try again also after what says nothing of that.
        """
        if isinstance(error, errors.DeadlineExceededError) and not error.reason and self._before:
            raise self._before  # why it was waiting
        self.failures += 1
        again |= error.code == grpc.StatusCode.UNAVAILABLE
        again |= self.busy and error.retry_after is not None
        most = min(channel.MOST_BACKOFF, channel.FIRST_BACKOFF * 2.0 ** min(self.failures - 1, 9))
        backoff = min(most * (0.5 + random.random() / 2), self.left / 2)
        delay = max(backoff, error.retry_after or 0)
        if not again or error.final or delay >= self.left or self.left < 0.01:
            raise error
        self._before = error
        return delay


def attempt(
    call: Call[Any], request: Any, start: int, checker: Checker, patience: Patience
) -> Steps:
    """Until one request is answered."""
    while True:
        try:
            # After a failure as soon as there is a connection.
            answer = yield "call", (call.method, request, patience.left, patience.failures > 0)
            checker.check(request, answer, start)
            return answer
        except errors.CastorError as error:
            # A server that drains has not begun.
            if not (call.repeat or isinstance(error, errors.DrainingError)):
                raise
            yield "sleep", patience.after(error)


def run(call: Call[Any], timeout: float) -> Steps:
    """Gives what the call comes to, or the one that it leads to."""
    patience = Patience(timeout)
    while True:
        checker, answers = Checker(call.quiet), list[Any]()
        patience.busy = len(call.requests) > 1

        def keep(answer: Any, answers: list[Any] = answers, call: Call[Any] = call) -> None:
            answers.append(answer)
            if call.progress:
                call.progress(len(answers))

        if call.streams and patience.busy:
            window = Window(call.method + "Stream", IN_FLIGHT, patience, checker)
            yield from window.steps(zip(call.requests, call.starts), keep)
        else:
            for request, start in zip(call.requests, call.starts):
                try:
                    keep((yield from attempt(call, request, start, checker, patience)))
                except errors.CastorError as error:
                    if patience.busy:
                        errors.of_input(error, start)
                    raise
                patience.renew() if patience.busy else patience.forget()
        result = call.read(answers)
        if not isinstance(result, type(call)):
            yield "give", result
            return
        call = result


class _Slot:
    def __init__(self, request: Any, start: int) -> None:
        self.request, self.start, self.answer = request, start, None
        self.state = "new"  # of the call that is open: then "sent", or "refused"


class Window:
    """At most `size` requests, with those answers that came before their turn.

    A request refused for load is sent again when another one has been answered, or else after the
    time that the server gives. Requests without an answer are sent again over another call.
    """

    def __init__(
        self, name: str, size: int, patience: Patience, checker: Checker, ordered: bool = True
    ) -> None:
        if size < 1:
            raise ValueError(f"in_flight is {size}, not at least 1")
        self._name, self._size, self._ordered = name, size, ordered
        self._patience, self._checker = patience, checker
        self._slots: deque[_Slot] = deque()
        self._count, self._wait = 0, 0.0

    def steps(
        self,
        source: Iterator[tuple[Any, int]] | None = None,
        keep: Callable[[Any], None] | None = None,
    ) -> Steps:
        """Of the stream. Without `source` and `keep`, its driver pulls and is given."""
        more = True
        while more or self._slots:
            self._renew("sent", "refused")
            yield "open", (self._name, self._patience.failures > 0)
            try:
                while True:
                    for request in self.unsent():
                        yield "send", request
                    while more and len(self._slots) < self._size:
                        entry = next(source, None) if source else (yield "pull", None)
                        self._patience.renew()  # it may have taken its time
                        more = entry is not None
                        if entry is not None:
                            self.add(*entry)
                            yield "send", self.unsent()[0]
                    if not self._slots:
                        break
                    self.take((yield "read", self._patience.left + GRACE))
                    if self._wait:
                        yield "sleep", self._wait
                        self._wait = 0.0
                        self._renew("refused")
                    for each in self.ready():
                        if keep:
                            keep(each)
                        else:
                            yield "give", each
                            self._patience.renew()  # so may the reader
            except errors.CastorError as error:
                ended = error.index is None and error.code == grpc.StatusCode.CANCELLED
                if error.index is None:
                    error.index = next(s.start for s in self._slots if s.answer is None)
                yield "sleep", self._patience.after(error, ended)
        yield "end", GRACE

    def add(self, request: Any, start: int) -> None:
        """`start`: the number of its first input."""
        request.request_id = str(self._count)
        request.timeout_ms = request.timeout_ms or max(1, round(self._patience.timeout * 1000))
        self._count += 1
        self._slots.append(_Slot(request, start))

    def unsent(self) -> list[Any]:
        """To be sent now."""
        found = [slot for slot in self._slots if slot.state == "new" and slot.answer is None]
        for slot in found:
            slot.state = "sent"
        return [slot.request for slot in found]

    def take(self, answer: Any) -> None:
        """Raises the error of a request, or UNAVAILABLE."""
        if answer is None:
            raise errors.ended_early()
        waiting = [slot for slot in self._slots if slot.state == "sent" and slot.answer is None]
        found = [slot for slot in waiting if slot.request.request_id == answer.request_id]
        must(found, f"no request waits for request_id {answer.request_id!r}")
        slot = found[0]
        try:
            self._checker.check(slot.request, answer, slot.start)
        except errors.CastorError as error:
            errors.of_input(error, slot.start)
            if error.retry_after is None or error.code == grpc.StatusCode.UNAVAILABLE:
                raise
            slot.state = "refused"
            if waiting == found:
                self._wait = self._patience.after(error)
            return
        slot.answer = answer
        self._patience.renew()
        self._renew("refused")

    def ready(self) -> list[Any]:
        """The answers whose turn it is, which leave the window."""
        found = []
        if not self._ordered:
            found = [slot.answer for slot in self._slots if slot.answer is not None]
            self._slots = deque(slot for slot in self._slots if slot.answer is None)
        while self._slots and self._slots[0].answer is not None:
            found.append(self._slots.popleft().answer)
        return found

    def _renew(self, *states: str) -> None:
        for slot in self._slots:
            slot.state = "new" if slot.state in states else slot.state
