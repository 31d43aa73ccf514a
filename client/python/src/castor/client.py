"""The blocking client. What it sends and reads is in requests.py and attention.py."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc
from numpy.typing import NDArray

from castor import attention, channel, errors, requests, tensors
from castor.requests import Call
from castor.texts import EncodeOptions, stream_requests
from castor.v1 import (
    attention_pb2_grpc,
    encoder_pb2_grpc,
    model_pb2_grpc,
    server_pb2_grpc,
    shared_memory_pb2_grpc,
)
from castor.window import GRACE, IN_FLIGHT, Window, ended_early

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MOST_SECONDS = 2_000_000.0  # in milliseconds an int32

P = ParamSpec("P")
T = TypeVar("T")

_STUBS: dict[str, Any] = {
    "AttentionService": attention_pb2_grpc.AttentionServiceStub,
    "EncoderService": encoder_pb2_grpc.EncoderServiceStub,
    "ModelService": model_pb2_grpc.ModelServiceStub,
    "ServerService": server_pb2_grpc.ServerServiceStub,
    "SharedMemoryService": shared_memory_pb2_grpc.SharedMemoryServiceStub,
}


class Connection:
    """The channels of one client, which are made when they are used: those of a process that
    forked, of another event loop, or of TLS files that have changed since, are not used again."""

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        tls: channel.TLS | bool | None = None,
        token: str | None = None,
        token_file: str | None = None,
        timeout: float = 60.0,
        tenant: str | None = None,
        allow_plaintext_token: bool = False,
    ) -> None:
        """`timeout` is each call's deadline in seconds, retries included. A token goes over TLS, or
        to this machine alone, unless `allow_plaintext_token`; its file, like those of TLS, may
        change. `tenant` names the caller where servers take no tokens."""
        if not isinstance(target, str) or not target:
            raise ValueError(f"target is {target!r}, not an address")
        self.target, self.timeout = target, timeout
        self._seconds(timeout)
        self._security = channel.Security(target, tls, token, token_file, allow_plaintext_token)
        self._tenant = (("castor-tenant", channel.checked("tenant", tenant)),) if tenant else ()
        self._lock = threading.Lock()
        self._made_for: Any = None
        self._channels: dict[bool, Any] = {}
        self._methods: dict[tuple[str, bool], Any] = {}
        self._cache: dict[str, Any] = {}
        self._closed = False
        _clients.add(self)

    def _seconds(self, timeout: float | None) -> float:
        """Of one call or request."""
        seconds = self.timeout if timeout is None else timeout
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= _MOST_SECONDS:
            raise ValueError(f"timeout is {seconds!r}, not a number of seconds")
        return seconds

    def _had(self, call: Call[Any]) -> Any:
        """An answer of before, if it will do."""
        had = self._cache.get(call.method) if call.holds else None
        return had if had is not None and call.holds and call.holds(had) else None

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._security.metadata(), *self._tenant)

    def _method(self, module: Any, loop: Any, name: str, repeat: bool) -> Any:
        """A method as gRPC's stubs have it, such as "EncoderService/Encode"."""
        made_for = (os.getpid(), loop, self._security.pem())
        with self._lock:
            if self._closed:
                raise ValueError("the client is closed")
            if made_for != self._made_for:
                # Not closed: calls in flight keep their channel until they end.
                self._channels, self._methods, self._made_for = {}, {}, made_for
            if repeat not in self._channels:
                self._channels[repeat] = channel.connect(
                    module, self.target, self._security.tls, made_for[2], repeat
                )
            if (name, repeat) not in self._methods:
                service, _, method = name.partition("/")
                stub = _STUBS[service](self._channels[repeat])
                self._methods[name, repeat] = getattr(stub, method)
            return self._methods[name, repeat]

    def _end(self) -> list[Any]:
        """The channels to close, if they are this process's."""
        with self._lock:
            mine = self._made_for and self._made_for[0] == os.getpid()
            channels = list(self._channels.values()) if mine else []
            self._channels, self._methods, self._closed = {}, {}, True
            return channels


def _renew_locks() -> None:
    """A lock that another thread holds while the process forks is held forever in the child."""
    for each in _clients:
        each._lock = threading.Lock()


_clients: weakref.WeakSet[Connection] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_locks)


def _blocking(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(build)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(build(*args, **kwargs))

    return method


class Client(Connection):
    """A client of castor-server. Any number of threads may use it. `with` closes it.

    Never fails to be made, and connects with the first call. UNAVAILABLE is retried; what else
    fails raises a castor.CastorError.
    """

    encode = _blocking(requests.encode)
    encode_with_report = _blocking(requests.encode_with_report)
    encode_query = _blocking(requests.encode_query)
    encode_document = _blocking(requests.encode_document)
    encode_tokens = _blocking(requests.encode_tokens)
    encode_spans = _blocking(requests.encode_spans)
    encode_sparse = _blocking(requests.encode_sparse)
    predict = _blocking(requests.predict)
    rank = _blocking(requests.rank)
    tokenize = _blocking(requests.tokenize)
    detokenize = _blocking(requests.detokenize)
    attend = _blocking(attention.attend)
    models = _blocking(requests.models)
    model = _blocking(requests.model)
    server_info = _blocking(requests.server_info)

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        in_flight: int = 8,
        ordered: bool = True,
        **options: Unpack[EncodeOptions],
    ) -> Iterator[NDArray[Any]]:
        """One row for each text, of any number of texts, which are taken as they are needed.

        Holds `in_flight` requests of up to 256 texts (or 32 Ki characters), and their answers. An
        error has the `index` of the first text of its request. `ordered=False` gives rows as they
        come, a request's together. Rows are views of their request's; copy those that you keep.
        """
        timeout = self._seconds(options.get("timeout"))
        window = Window(in_flight, timeout, ordered)
        source = stream_requests(texts, options)
        for answer in self._stream("EncoderService/EncodeStream", source, window, timeout):
            yield from tensors.from_message(answer.output)

    @contextmanager
    def shared_memory(self, size: int) -> Iterator[attention.Memory]:
        """Shared memory of `size` bytes, registered with a server on this machine."""
        memory = attention.Memory(size, self._run(attention.key_prefix()))
        try:
            self._run(memory.register())
            try:
                yield memory
            finally:
                self._run(memory.unregister())
        finally:
            memory.unlink()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Returns when a server answers."""
        self._unary(requests.server_info(timeout=timeout), wait_for_ready=True)

    def close(self) -> None:
        """Cancels what is in flight."""
        for each in self._end():
            each.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        while True:
            if call.streams and len(call.requests) > 1:
                answers = self._many(call)
            else:
                answers = [self._unary(call, number) for number in range(len(call.requests))]
            result = call.read(answers)
            if not isinstance(result, Call):
                return result
            call = result

    def _unary(self, call: Call[Any], number: int = 0, wait_for_ready: bool = False) -> Any:
        if had := self._had(call):
            return had
        method = self._method(grpc, None, call.method, call.repeat)
        try:
            answer = method(
                call.requests[number],
                timeout=self._seconds(call.timeout),
                metadata=self._metadata(),
                wait_for_ready=wait_for_ready,
            )
        except grpc.RpcError as error:
            raise call.failed(errors.from_rpc(error), number) from None
        if call.holds:
            self._cache[call.method] = answer
        if call.progress:
            call.progress(number + 1)
        return answer

    def _many(self, call: Call[Any]) -> list[Any]:
        answers: list[Any] = []
        timeout = self._seconds(call.timeout)
        source = zip(call.requests, call.starts)
        window = Window(IN_FLIGHT, timeout)
        for answer in self._stream(call.method + "Stream", source, window, timeout):
            answers.append(answer)
            if call.progress:
                call.progress(len(answers))
        return answers

    def _stream(
        self, name: str, source: Iterator[tuple[Any, int]], window: Window, timeout: float
    ) -> Iterator[Any]:
        """The answers. Takes from the source when there is room in the window, in this thread."""
        more, process = True, os.getpid()
        while more or not window.empty:
            sends: SimpleQueue[Any] = SimpleQueue()
            for request in window.unanswered():
                sends.put(request)
            method = self._method(grpc, None, name, True)
            call = method(iter(sends.get, None), metadata=self._metadata())
            try:
                while True:
                    while more and not window.full:
                        entry = next(source, None)
                        more = entry is not None
                        if entry is not None:
                            sends.put(window.add(*entry))
                    if window.empty:
                        break
                    if os.getpid() != process:
                        raise RuntimeError("a stream does not go on in a fork of its process")
                    for request in window.take(_next(call, timeout)):
                        sends.put(request)
                    yield from window.ready()
                sends.put(None)
                next(call, None)  # the end, which is OK
            except grpc.RpcError as error:
                time.sleep(window.after(errors.from_rpc(error)))
            except errors.CastorError as error:
                time.sleep(window.after(error))
            finally:
                if os.getpid() == process:
                    sends.put(None)
                    call.cancel()


def _next(call: Any, timeout: float) -> Any:
    """The next answer; the server's own deadline comes first, unless it hangs."""
    watch = threading.Timer(timeout + GRACE, call.cancel)
    watch.daemon = True
    watch.start()
    try:
        answer = next(call, None)
    finally:
        watch.cancel()
    if answer is None:
        raise ended_early()
    return answer
