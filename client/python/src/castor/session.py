"""One call of a client's method: attempts, waits, and the checked answers of its requests.

Methods, sessions and streams are coroutines, which await the steps on the network and with the
clock alone. Session's steps block, so that they never suspend; those of aio.py suspend.
"""

from __future__ import annotations

import inspect
import os
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from castor import errors, status
from castor.answers import Checker, must
from castor.texts import each
from castor.v1 import model_pb2

if TYPE_CHECKING:
    from castor.channel import Connection

T = TypeVar("T")

IN_FLIGHT = 8  # requests of a call that has several
GRACE = 0.2  # seconds for the server to report an expired deadline first


def finish(blocking: Awaitable[T]) -> T:
    """Runs a coroutine that never suspends, and returns its result."""
    try:
        blocking.__await__().send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("a blocking client waits for an event loop")


class Session:
    """One call: `timeout` seconds in all, or with many requests since the last answer.

    A call that is `busy`, with many requests, also waits where the server has no room for it. It
    owns one stream at a time: opening another cancels the one before.
    """

    def __init__(self, client: Connection, timeout: float, busy: bool = False) -> None:
        self._client, self.timeout, self.busy = client, timeout, busy
        self._process = os.getpid()
        self.wire: bytes | None = None  # a single request's bytes, if they are already made
        self._stream: Any = None
        self._sends: Any = None  # requests of the stream; None ends it
        self.renew()

    # Steps. Failures are CastorErrors. With `ready` a step waits for a connection.

    _queue: Any = SimpleQueue

    def _start(self, name: str, request: Any, ready: bool, **options: Any) -> Any:
        """Starts a gRPC call."""
        method, metadata = self._client._method(name), self._client._metadata()
        return method(request, metadata=metadata, wait_for_ready=ready, **options)

    def _failure(self, error: grpc.RpcError) -> errors.CastorError:
        found = status.from_rpc(error)
        found.final |= self._client._closed
        return found

    async def call(self, name: str, request: Any, ready: bool) -> Any:
        try:
            answer = self._start(name, self.wire or request, ready, timeout=self.left)
            return await answer if inspect.isawaitable(answer) else answer
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def open(self, name: str, ready: bool) -> None:
        self.close()
        self._sends = self._queue()
        self._stream = self._start(name, self._requests(self._sends), ready)

    def _requests(self, sends: Any) -> Any:
        return iter(sends.get, None)

    def send(self, request: Any) -> None:
        self._sends.put_nowait(request)

    async def read(self, seconds: float) -> Any:
        """The stream's next answer; None: its end."""
        if os.getpid() != self._process:
            raise RuntimeError("a stream does not go on in a fork of its process")
        overdue = threading.Event()

        def end(stream: Any = self._stream) -> None:
            overdue.set()
            stream.cancel()

        watch = threading.Timer(seconds, end)
        watch.daemon = True
        watch.start()
        try:
            return next(self._stream, None)
        except grpc.RpcError as error:
            late = errors.DeadlineExceededError(status.LATE)
            raise late if overdue.is_set() else self._failure(error) from None
        finally:
            watch.cancel()

    async def end(self) -> None:
        """Ends the stream, whose requests are all answered."""
        self.send(None)
        try:
            extra = await self.read(GRACE)
        except errors.CastorError:
            return
        must(extra is None, "a request is answered twice")

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        if self._stream and os.getpid() == self._process:
            self.send(None)
            self._stream.cancel()

    # Time.

    def renew(self, whole: bool = True) -> None:
        """A request is answered: failures are forgotten, and the `whole` time begins again."""
        if whole:
            self._ends = time.monotonic() + self.timeout
        self.failures = 0
        self._before: errors.CastorError | None = None

    @property
    def left(self) -> float:
        return max(self._ends - time.monotonic(), 0.001)

    def delay(
        self, error: errors.CastorError, resumable: bool = False, repeatable: bool = True
    ) -> float:
        """Seconds until the next attempt, if there is a use in one; else raises the error.

        resumable: an attempt makes sense although the error does not say so. repeatable: the server
        may be given the request twice.
        """
        if isinstance(error, errors.DeadlineExceededError) and not error.reason and self._before:
            raise self._before  # the reason of the wait
        self.failures += 1
        again = resumable or error.code == grpc.StatusCode.UNAVAILABLE
        again |= self.busy and error.retry_after is not None
        # A draining server has not begun.
        again &= repeatable or isinstance(error, errors.DrainingError)
        most = min(2.0, 0.1 * 2.0 ** min(self.failures - 1, 9))
        backoff = min(most * (0.5 + random.random() / 2), self.left / 2)
        delay = max(backoff, error.retry_after or 0)
        if not again or error.final or delay >= self.left or self.left < 0.01:
            raise error
        self._before = error
        return delay

    # Requests.

    def prepare(self, request: Any) -> Any:
        """The request, of the client's model unless it names another."""
        default = self._client.default_model
        if default and not getattr(request, "model", default):
            request.model = default
        return request

    async def ask(
        self,
        method: str,
        requests: Sequence[Any],
        starts: Sequence[int] = (0,),
        *,
        repeatable: bool = True,
        quiet: bool = False,
    ) -> AsyncIterator[Any]:
        """Their answers, in order. Several EncodeRequests travel over one stream.

        starts: the number of each request's first input. quiet: does not warn of texts that were
        cut.
        """
        self.busy, checker = len(requests) > 1, Checker(quiet)
        if self.busy and method == "EncoderService/Encode":
            stream = Stream(self, each(zip(requests, starts)), quiet=quiet)
            while found := await stream.next():
                for answer in found:
                    yield answer
            return
        for request, start in zip(requests, starts):
            while True:
                try:
                    # After a failure, wait for a connection rather than fail at once.
                    ready = self.failures > 0
                    answer = await self.call(method, self.prepare(request), ready)
                    checker.check(request, answer, start)
                    break
                except errors.CastorError as error:
                    if self.busy:
                        status.blame(error, start)
                    await self.sleep(self.delay(error, repeatable=repeatable))
            self.renew(whole=self.busy)
            yield answer

    async def one(self, method: str, request: Any, **options: bool) -> Any:
        [answer] = [answer async for answer in self.ask(method, [request], (0,), **options)]
        return answer

    async def model(self, name: str | None = None) -> model_pb2.Model:
        """The model of this name; default: the client's, or the server's only one."""
        if name := name or self._client.default_model:
            get = model_pb2.GetModelRequest(name=name)
            return await self.one("ModelService/GetModel", get)  # type: ignore[no-any-return]
        found = (await self.one("ModelService/ListModels", model_pb2.ListModelsRequest())).models
        if not found:
            raise errors.ModelNotFoundError("the server has no model", field="model")
        if len(found) > 1:
            loaded = ", ".join(model.name for model in found)
            raise errors.InvalidFieldError(f"model must be one of {loaded}", field="model")
        return found[0]  # type: ignore[no-any-return]


class _Slot:
    def __init__(self, request: Any, start: int) -> None:
        self.request, self.start, self.answer = request, start, None
        self.state = "new"  # in the open stream: then "sent", or "refused"


class Stream:
    """A stream of requests, taken from `source` with the number of their first input.

    At most `in_flight` are unanswered, or answered ahead of their turn. A request refused for load
    is sent again when another one is answered, or after the delay that the server gives. When a
    stream ends early, the unanswered requests are sent again over a new one.
    """

    def __init__(
        self,
        session: Session,
        source: AsyncIterator[tuple[Any, int]],
        in_flight: int = IN_FLIGHT,
        quiet: bool = False,
    ) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}, not at least 1")
        self._session, self._source, self._checker = session, source, Checker(quiet)
        self._in_flight, self._slots = in_flight, deque[_Slot]()
        self._count, self._more, self._open = 0, True, False

    async def next(self) -> list[Any]:
        """The next answers in order, at least one; an empty list after the last."""
        session, found = self._session, list[Any]()
        session.renew()  # the reader may have paused
        while not found:
            await self._fill()
            if not self._slots:
                if self._open:
                    await session.end()
                break
            try:
                await self._take(await session.read(session.left + GRACE))
            except errors.CastorError as error:
                # An error without an index is the stream's. Streams resume that the server cancels
                # because they were idle for longer than --transfer-timeout.
                idle = error.index is None and error.code == grpc.StatusCode.CANCELLED
                if error.index is None:
                    error.index = self._slots[0].start
                await session.sleep(session.delay(error, resumable=idle))
                self._renew("sent", "refused")
                self._open = False
            while self._slots and self._slots[0].answer is not None:
                found.append(self._slots.popleft().answer)
        return found

    async def _fill(self) -> None:
        """Sends new requests, then takes more from the source while there is room."""
        self._send()
        while self._more and len(self._slots) < self._in_flight:
            entry = await anext(self._source, None)
            self._session.renew()  # the source may have paused
            if entry is None:
                self._more = False
                return
            request, start = entry
            request.request_id, self._count = str(self._count), self._count + 1
            request.timeout_ms = request.timeout_ms or max(1, round(self._session.timeout * 1000))
            self._slots.append(_Slot(self._session.prepare(request), start))
            self._send()

    def _send(self) -> None:
        for slot in self._slots:
            if slot.state == "new" and slot.answer is None:
                if not self._open:
                    ready = self._session.failures > 0
                    self._session.open("EncoderService/EncodeStream", ready)
                    self._open = True
                slot.state = "sent"
                self._session.send(slot.request)

    async def _take(self, answer: Any) -> None:
        """Files an answer under its request. Raises its error, or UNAVAILABLE at the end."""
        if answer is None:
            raise errors.UnavailableError(status.ENDED)
        waiting = [slot for slot in self._slots if slot.state == "sent" and slot.answer is None]
        found = [slot for slot in waiting if slot.request.request_id == answer.request_id]
        must(found, f"no request waits for request_id {answer.request_id!r}")
        [slot] = found
        try:
            self._checker.check(slot.request, answer, slot.start)
        except errors.CastorError as error:
            status.blame(error, slot.start)
            if error.retry_after is None or error.code == grpc.StatusCode.UNAVAILABLE:
                raise
            slot.state = "refused"
            if waiting != found:  # another answer will come first
                return
            await self._session.sleep(self._session.delay(error))
        else:
            slot.answer = answer
            self._session.renew()
        self._renew("refused")

    def _renew(self, *states: str) -> None:
        for slot in self._slots:
            slot.state = "new" if slot.state in states else slot.state
