"""The blocking client. requests.py and attention.py have its methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from numpy.typing import NDArray

from castor import attention, requests, tensors
from castor.channel import Connection
from castor.session import IN_FLIGHT, Session, Stream, finish
from castor.texts import EncodeOptions, stream_requests

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")


def method_of(coroutine: Callable[..., Any], method: Any) -> Any:
    """The method, with the name, docstring and signature of the coroutine, but a client in place of
    the Session."""
    functools.update_wrapper(method, coroutine)
    del method.__wrapped__  # inspect.signature() would follow it
    _, *others = inspect.signature(coroutine).parameters.values()
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = inspect.Signature([first, *others])
    return method


def _blocking(
    coroutine: Callable[Concatenate[Session, P], Awaitable[T]],
) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: Any, **kwargs: Any) -> Any:
        with self._session(kwargs.get("timeout")) as session:
            return finish(coroutine(session, *args, **kwargs))

    return method_of(coroutine, method)  # type: ignore[no-any-return]


class Client(Connection):
    """A client of castor-server. Any number of threads may use it. `with` closes it.

    The constructor does not connect: the first call does. UNAVAILABLE is retried; what else fails
    raises a castor.CastorError.
    """

    _Session = Session

    encode = _blocking(requests.encode)
    encode_with_report = _blocking(requests.encode_with_report)
    encode_query = _blocking(requests.encode_query)
    encode_document = _blocking(requests.encode_document)
    encode_tokens = _blocking(requests.encode_tokens)
    encode_spans = _blocking(requests.encode_spans)
    encode_sparse = _blocking(requests.encode_sparse)
    predict = _blocking(requests.predict)
    classify = _blocking(requests.classify)
    entities = _blocking(requests.entities)
    rank = _blocking(requests.rank)
    tokenize = _blocking(requests.tokenize)
    detokenize = _blocking(requests.detokenize)
    attend = _blocking(attention.attend)
    load_model = _blocking(requests.load_model)
    unload_model = _blocking(requests.unload_model)
    models = _blocking(requests.models)
    model = _blocking(requests.model)
    server_info = _blocking(requests.server_info)
    _register = _blocking(attention.register)
    _unregister = _blocking(attention.unregister)

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        in_flight: int = IN_FLIGHT,
        **options: Unpack[EncodeOptions],
    ) -> Iterator[NDArray[Any]]:
        """One row for each text of an iterable of any length, which is read as needed.

        Holds `in_flight` requests of up to 256 texts (or 32 Ki characters), and their answers. An
        error has the `index` of the first text of its request. Rows are views of their request's;
        copy those that you keep.
        """
        source = stream_requests(texts, options)
        with self._session(options.get("timeout"), busy=True) as session:
            stream = Stream(session, source, in_flight)
            while answers := finish(stream.next()):
                for answer in answers:
                    yield from tensors.from_message(answer.output)

    @contextmanager
    def shared_memory(self, size: int) -> Iterator[attention.Memory]:
        """Shared memory of `size` bytes, registered with a server on this machine."""
        prefix = self.server_info().limits.shared_memory_key_prefix
        with closing(attention.Memory(size, prefix or "/")) as memory:
            self._register(memory)
            try:
                yield memory
            finally:
                self._unregister(memory)

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
