"""The same client for asyncio: Client's methods, to be awaited. It may be used from any loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio
from numpy.typing import NDArray

from castor import attention, errors, requests, status, tensors
from castor.answers import must
from castor.channel import Connection
from castor.client import method_of
from castor.session import IN_FLIGHT, Session, Stream
from castor.texts import EncodeOptions, stream_requests

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSession(Session):
    """A session whose steps suspend. gRPC writes streams in a task of its own: reads never wait."""

    _queue = asyncio.Queue

    async def _requests(self, sends: asyncio.Queue[Any]) -> AsyncIterator[Any]:
        while (request := await sends.get()) is not None:
            yield request

    async def read(self, seconds: float) -> Any:
        try:
            answer = await asyncio.wait_for(self._stream.read(), seconds)
        except asyncio.TimeoutError:  # in Python 3.10 it is not the builtin one
            raise errors.DeadlineExceededError(status.LATE) from None
        except grpc.RpcError as error:
            failure = self._failure(error)
            # A write failed before the status arrived.
            if failure.message == "Internal error from Core":
                failure = errors.UnavailableError(status.ENDED)
            raise failure from None
        must(answer is not None, "it is not a message")
        return answer or None  # gRPC's EOF is false

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _awaitable(
    coroutine: Callable[Concatenate[Session, P], Awaitable[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def method(self: AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
        with self._session(kwargs.get("timeout")) as session:
            return await coroutine(session, *args, **kwargs)

    return method_of(coroutine, method)  # type: ignore[no-any-return]


class AsyncClient(Connection):
    """Client for asyncio. `async with` closes it."""

    _grpc = grpc.aio
    _loop = staticmethod(asyncio.get_running_loop)
    _Session = AsyncSession

    encode = _awaitable(requests.encode)
    encode_with_report = _awaitable(requests.encode_with_report)
    encode_query = _awaitable(requests.encode_query)
    encode_document = _awaitable(requests.encode_document)
    encode_tokens = _awaitable(requests.encode_tokens)
    encode_spans = _awaitable(requests.encode_spans)
    encode_sparse = _awaitable(requests.encode_sparse)
    predict = _awaitable(requests.predict)
    classify = _awaitable(requests.classify)
    entities = _awaitable(requests.entities)
    rank = _awaitable(requests.rank)
    tokenize = _awaitable(requests.tokenize)
    detokenize = _awaitable(requests.detokenize)
    attend = _awaitable(attention.attend)
    load_model = _awaitable(requests.load_model)
    unload_model = _awaitable(requests.unload_model)
    models = _awaitable(requests.models)
    model = _awaitable(requests.model)
    server_info = _awaitable(requests.server_info)
    _register = _awaitable(attention.register)
    _unregister = _awaitable(attention.unregister)

    async def encode_stream(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        in_flight: int = IN_FLIGHT,
        **options: Unpack[EncodeOptions],
    ) -> AsyncIterator[NDArray[Any]]:
        """Like Client.encode_stream; takes asynchronous iterables too."""
        source = stream_requests(texts, options)
        with self._session(options.get("timeout"), busy=True) as session:
            stream = Stream(session, source, in_flight)
            while answers := await stream.next():
                for answer in answers:
                    for row in tensors.from_message(answer.output):
                        yield row

    @asynccontextmanager
    async def shared_memory(self, size: int) -> AsyncIterator[attention.Memory]:
        """Like Client.shared_memory."""
        prefix = (await self.server_info()).limits.shared_memory_key_prefix
        with closing(attention.Memory(size, prefix or "/")) as memory:
            await self._register(memory)
            try:
                yield memory
            finally:
                await self._unregister(memory)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Returns when a server answers."""
        await self.server_info(timeout=timeout)

    async def close(self) -> None:
        """Cancels what is in flight."""
        for each in self._end():
            await each.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
