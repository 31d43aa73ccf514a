"""The blocking client. What it sends and reads is in requests.py and attention.py."""

from __future__ import annotations

import functools
import inspect
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
from castor.answers import Checker, must
from castor.requests import Call
from castor.texts import EncodeOptions, stream_requests
from castor.v1 import (
    attention_pb2_grpc,
    encoder_pb2_grpc,
    model_pb2_grpc,
    server_pb2_grpc,
    shared_memory_pb2_grpc,
)
from castor.window import Patience, Steps, Window, run

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
        model: str | None = None,
    ) -> None:
        """`timeout` is each call's deadline in seconds, retries included. A token goes over TLS, or
        to this machine alone, unless `allow_plaintext_token`; its file, like those of TLS, may
        change. `tenant` names the caller where servers take no tokens. `model` is the calls'
        default."""
        channel.check_target(target)
        self.target, self.timeout, self.default_model = target, timeout, model
        self._options: dict[str, Any] = {"tls": tls, "token": token, "token_file": token_file}
        self._options |= {"tenant": tenant, "allow_plaintext_token": allow_plaintext_token}
        self._options["model"] = model
        self._seconds(timeout)
        self._security = channel.Security(target, tls, token, token_file, allow_plaintext_token)
        self._tenant = (("castor-tenant", channel.checked("tenant", tenant)),) if tenant else ()
        self._lock = threading.Lock()
        self._made_for: Any = None
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        self._closed = False
        _clients.add(self)

    def __deepcopy__(self, memo: Any = None) -> Any:
        """With channels of its own, which are made when they are used."""
        return type(self)(self.target, timeout=self.timeout, **self._options)

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        if self._options["token"]:
            raise TypeError("a client with a token is not pickled: use token_file")
        return functools.partial(type(self), timeout=self.timeout, **self._options), (self.target,)

    def _seconds(self, timeout: float | None) -> float:
        """Of one call or request."""
        seconds = self.timeout if timeout is None else timeout
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= _MOST_SECONDS:
            raise ValueError(f"timeout is {seconds!r}, not a number of seconds")
        return seconds

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._security.metadata(), *self._tenant)

    def _method(self, module: Any, loop: Any, name: str) -> Any:
        """A method as gRPC's stubs have it, such as "EncoderService/Encode"."""
        made_for = (os.getpid(), loop, self._security.pem())
        with self._lock:
            if self._closed:
                raise ValueError("the client is closed")
            if made_for != self._made_for:
                # Not closed: calls in flight keep their channel until they end.
                self._channel = channel.connect(
                    module, self.target, self._security.tls, made_for[2]
                )
                self._methods, self._made_for = {}, made_for
            if name not in self._methods:
                service, _, method = name.partition("/")
                self._methods[name] = getattr(_STUBS[service](self._channel), method)
            return self._methods[name]

    def _end(self) -> list[Any]:
        """The channel to close, if it is this process's."""
        with self._lock:
            mine = self._made_for and self._made_for[0] == os.getpid()
            channels = [self._channel] if mine and not self._closed else []
            self._channel, self._methods, self._closed = None, {}, True
            return channels

    def _call(self, build: Callable[..., Call[Any]], args: Any, kwargs: dict[str, Any]) -> Steps:
        """The steps of a method, of the client's model unless another is named."""
        name = "name" if build is requests.model else "model"
        takes = build not in (attention.attend, requests.models, requests.server_info)
        if self.default_model and takes and not kwargs.get(name) and not (args and name == "name"):
            kwargs[name] = self.default_model
        return self._steps(build(*args, **kwargs))

    def _next(self, take: Callable[[Any], Any], value: Any) -> Any:
        """The next step; None: there is none."""
        if self._closed and isinstance(value, errors.CastorError):
            raise value
        try:
            return take(value)
        except StopIteration:
            return None
        except errors.UnavailableError as error:
            raise channel.explained(error, self.target, self._security.tls) from None

    def _steps(self, call: Call[Any]) -> Steps:
        return run(call, self._seconds(call.timeout))

    def _window(
        self, in_flight: int, ordered: bool, options: EncodeOptions
    ) -> tuple[Steps, EncodeOptions]:
        """The steps of encode_stream, and its requests' options."""
        patience = Patience(self._seconds(options.get("timeout")), busy=True)
        name = "EncoderService/EncodeStream"
        window = Window(name, in_flight, patience, Checker(), ordered)
        model = options.get("model") or self.default_model
        return window.steps(), {**options, "model": model}


def _renew_locks() -> None:
    """A lock that another thread holds while the process forks is held forever in the child."""
    for each in _clients:
        each._lock = threading.Lock()


_clients: weakref.WeakSet[Connection] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_locks)


def method_of(build: Callable[..., Any], method: Any) -> Any:
    """The method with the name, description and signature of what builds its call."""
    functools.update_wrapper(method, build)
    del method.__wrapped__  # or else a bound method would lack its first argument
    signature = inspect.signature(build)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
    return method


def _blocking(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: Any, **kwargs: Any) -> Any:
        [result] = self._drive(self._call(build, args, kwargs))
        return result

    return method_of(build, method)  # type: ignore[no-any-return]


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
    entities = _blocking(requests.entities)
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
        steps, options = self._window(in_flight, ordered, options)
        for answer in self._drive(steps, stream_requests(texts, options)):
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
        self.server_info(timeout=timeout)

    def close(self) -> None:
        """Cancels what is in flight."""
        for each in self._end():
            each.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        [result] = self._drive(self._steps(call))
        return result  # type: ignore[no-any-return]

    def _drive(self, steps: Steps, source: Iterator[Any] = iter(())) -> Iterator[Any]:  # noqa: B008
        """What the steps give. The source is pulled when there is room, in this thread."""
        wire, take, value = _Wire(self), steps.send, None
        try:
            while (step := self._next(take, value)) is not None:
                take, value = steps.send, None
                if step[0] == "give":
                    yield step[1]
                elif step[0] == "pull":
                    value = next(source, None)
                else:
                    try:
                        value = getattr(wire, step[0])(step[1])
                    except errors.CastorError as error:
                        take, value = steps.throw, error
        finally:
            wire.close()


class _Wire:
    """Takes the steps that concern the server, or the clock."""

    def __init__(self, client: Client) -> None:
        self._client, self._process = client, os.getpid()
        self._open: Any = None

    def call(self, what: tuple[str, Any, float, bool]) -> Any:
        name, request, seconds, ready = what
        method, metadata = self._client._method(grpc, None, name), self._client._metadata()
        try:
            return method(request, timeout=seconds, metadata=metadata, wait_for_ready=ready)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def open(self, what: tuple[str, bool]) -> None:
        self.close()
        self._sends: SimpleQueue[Any] = SimpleQueue()
        method, metadata = self._client._method(grpc, None, what[0]), self._client._metadata()
        requests = iter(self._sends.get, None)
        self._open = method(requests, metadata=metadata, wait_for_ready=what[1])

    def send(self, request: Any) -> None:
        self._sends.put(request)

    def read(self, seconds: float) -> Any:
        """The next answer; None: the stream's end."""
        if os.getpid() != self._process:
            raise RuntimeError("a stream does not go on in a fork of its process")
        overdue = threading.Event()

        def end(call: Any = self._open) -> None:
            overdue.set()
            call.cancel()

        watch = threading.Timer(seconds, end)
        watch.daemon = True
        watch.start()
        try:
            return next(self._open, None)
        except grpc.RpcError as error:
            raise errors.late() if overdue.is_set() else errors.from_rpc(error) from None
        finally:
            watch.cancel()

    def end(self, seconds: float) -> None:
        self._sends.put(None)
        try:
            extra = self.read(seconds)
        except errors.CastorError:
            return  # all is answered
        must(extra is None, "a request is answered twice")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        if self._open and os.getpid() == self._process:
            self._sends.put(None)
            self._open.cancel()
