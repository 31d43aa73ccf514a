"""The same client for asyncio: Client's methods, to be awaited. It may be used from any loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio
from numpy.typing import NDArray

from castor import attention, errors, requests, tensors
from castor.answers import must
from castor.client import Connection, method_of
from castor.requests import Call
from castor.texts import EncodeOptions, Packer, check_stream, encode_request
from castor.window import Steps

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")


def _awaitable(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def method(self: AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
        [result] = [each async for each in self._drive(self._call(build, args, kwargs))]
        return result

    return method_of(build, method)  # type: ignore[no-any-return]


class AsyncClient(Connection):
    """Client for asyncio. `async with` closes it."""

    encode = _awaitable(requests.encode)
    encode_with_report = _awaitable(requests.encode_with_report)
    encode_query = _awaitable(requests.encode_query)
    encode_document = _awaitable(requests.encode_document)
    encode_tokens = _awaitable(requests.encode_tokens)
    encode_spans = _awaitable(requests.encode_spans)
    encode_sparse = _awaitable(requests.encode_sparse)
    predict = _awaitable(requests.predict)
    entities = _awaitable(requests.entities)
    rank = _awaitable(requests.rank)
    tokenize = _awaitable(requests.tokenize)
    detokenize = _awaitable(requests.detokenize)
    attend = _awaitable(attention.attend)
    models = _awaitable(requests.models)
    model = _awaitable(requests.model)
    server_info = _awaitable(requests.server_info)

    async def encode_stream(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        in_flight: int = 8,
        ordered: bool = True,
        **options: Unpack[EncodeOptions],
    ) -> AsyncIterator[NDArray[Any]]:
        """As Client.encode_stream, of an iterable or an asynchronous one."""
        steps, options = self._window(in_flight, ordered, options)
        async for answer in self._drive(steps, _requests(texts, options)):
            for row in tensors.from_message(answer.output):
                yield row

    @contextlib.asynccontextmanager
    async def shared_memory(self, size: int) -> AsyncIterator[attention.Memory]:
        """As Client.shared_memory."""
        memory = attention.Memory(size, await self._run(attention.key_prefix()))
        try:
            await self._run(memory.register())
            try:
                yield memory
            finally:
                await self._run(memory.unregister())
        finally:
            memory.unlink()

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

    async def _run(self, call: Call[T]) -> T:
        [result] = [each async for each in self._drive(self._steps(call))]
        return result  # type: ignore[no-any-return]

    async def _drive(
        self, steps: Steps, source: AsyncIterator[Any] | None = None
    ) -> AsyncIterator[Any]:
        """As Client's."""
        wire, take, value = _Wire(self), steps.send, None
        try:
            while (step := self._next(take, value)) is not None:
                take, value = steps.send, None
                if step[0] == "give":
                    yield step[1]
                elif step[0] == "pull" and source:
                    value = await anext(source, None)
                else:
                    try:
                        value = await getattr(wire, step[0])(step[1])
                    except errors.CastorError as error:
                        take, value = steps.throw, error
        finally:
            wire.close()


class _Wire:
    """As the blocking client's. A task of its own writes, so that reading never waits for that."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._open: Any = None

    def _method(self, name: str) -> Any:
        return self._client._method(grpc.aio, asyncio.get_running_loop(), name)

    async def call(self, what: tuple[str, Any, float, bool]) -> Any:
        name, request, seconds, ready = what
        method, metadata = self._method(name), self._client._metadata()
        try:
            return await method(request, timeout=seconds, metadata=metadata, wait_for_ready=ready)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    async def open(self, what: tuple[str, bool]) -> None:
        self.close()
        self._sends: asyncio.Queue[Any] = asyncio.Queue()
        metadata = self._client._metadata()
        self._open = self._method(what[0])(metadata=metadata, wait_for_ready=what[1])
        self._writer = asyncio.create_task(_write(self._open, self._sends))

    async def send(self, request: Any) -> None:
        self._sends.put_nowait(request)

    async def read(self, seconds: float) -> Any:
        try:
            answer = await asyncio.wait_for(self._open.read(), seconds)
        except asyncio.TimeoutError:  # in Python 3.10 it is not the builtin one
            raise errors.late() from None
        except grpc.RpcError as error:
            found = errors.from_rpc(error)
            if found.message == "Internal error from Core":  # of a write, before the status came
                found = errors.ended_early()
            raise found from None
        must(answer is not None, "it is not a message")
        return answer or None

    async def end(self, seconds: float) -> None:
        self._sends.put_nowait(None)
        try:
            extra = await self.read(seconds)
        except errors.CastorError:
            return  # all is answered
        must(extra is None, "a request is answered twice")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def close(self) -> None:
        if self._open:
            self._writer.cancel()
            self._open.cancel()


async def _write(call: Any, sends: asyncio.Queue[Any]) -> None:
    with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # which a read tells of
        while (request := await sends.get()) is not None:
            await call.write(request)
        await call.done_writing()


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _requests(
    texts: Iterable[str] | AsyncIterable[str], options: EncodeOptions
) -> AsyncIterator[tuple[Any, int]]:
    check_stream(texts, options)
    packer, start, index = Packer(), 0, 0
    async for text in texts if isinstance(texts, AsyncIterable) else _each(texts):
        if packer.add(text, index):
            batch = packer.take()
            yield encode_request(batch, start, "pooled", options), start
            start += len(batch)
        index += 1
    if packer.texts:
        yield encode_request(packer.take(), start, "pooled", options), start
