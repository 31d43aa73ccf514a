"""The same client for asyncio: Client's methods, to be awaited. It may be used from any loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio
from numpy.typing import NDArray

from castor import attention, errors, requests, tensors
from castor.client import Connection
from castor.requests import Call
from castor.texts import EncodeOptions, Packer, check_stream, encode_request
from castor.window import GRACE, IN_FLIGHT, Window, ended_early

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")


def _awaitable(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @functools.wraps(build)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(*args, **kwargs))

    return method


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
        timeout = self._seconds(options.get("timeout"))
        window = Window(in_flight, timeout, ordered)
        source = _requests(texts, options)
        async for answer in self._stream("EncoderService/EncodeStream", source, window, timeout):
            for row in tensors.from_message(answer.output):
                yield row

    @asynccontextmanager
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
        await self._unary(requests.server_info(timeout=timeout), wait_for_ready=True)

    async def close(self) -> None:
        """Cancels what is in flight."""
        for each in self._end():
            await each.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        while True:
            if call.streams and len(call.requests) > 1:
                answers = await self._many(call)
            else:
                answers = [await self._unary(call, number) for number in range(len(call.requests))]
            result = call.read(answers)
            if not isinstance(result, Call):
                return result
            call = result

    def _of_loop(self, name: str, repeat: bool) -> Any:
        return self._method(grpc.aio, asyncio.get_running_loop(), name, repeat)

    async def _unary(self, call: Call[Any], number: int = 0, wait_for_ready: bool = False) -> Any:
        if had := self._had(call):
            return had
        try:
            answer = await self._of_loop(call.method, call.repeat)(
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

    async def _many(self, call: Call[Any]) -> list[Any]:
        answers: list[Any] = []
        timeout = self._seconds(call.timeout)
        source = _each(zip(call.requests, call.starts))
        window = Window(IN_FLIGHT, timeout)
        async for answer in self._stream(call.method + "Stream", source, window, timeout):
            answers.append(answer)
            if call.progress:
                call.progress(len(answers))
        return answers

    async def _stream(
        self, name: str, source: AsyncIterator[tuple[Any, int]], window: Window, timeout: float
    ) -> AsyncIterator[Any]:
        more = True
        while more or not window.empty:
            call = self._of_loop(name, True)(metadata=self._metadata())
            try:
                for request in window.unanswered():
                    await call.write(request)
                while True:
                    while more and not window.full:
                        entry = await anext(source, None)
                        more = entry is not None
                        if entry is not None:
                            await call.write(window.add(*entry))
                    if window.empty:
                        break
                    answer = await asyncio.wait_for(call.read(), timeout + GRACE)
                    if not answer:
                        raise ended_early()
                    for request in window.take(answer):
                        await call.write(request)
                    for each in window.ready():
                        yield each
                await call.done_writing()
                await call.read()  # the end, which is OK
            except grpc.RpcError as error:
                await asyncio.sleep(window.after(errors.from_rpc(error)))
            except errors.CastorError as error:
                await asyncio.sleep(window.after(error))
            finally:
                call.cancel()


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
