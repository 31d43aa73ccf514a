"""The asynchronous client: what differs from the blocking one."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from conftest import Server
from test_client import TEXTS, arrays, softmax_attention

import castor


def test_the_same_methods_with_the_same_signatures() -> None:
    import inspect

    for name in vars(castor.Client):
        if name.startswith("_"):
            continue
        blocking, awaitable = getattr(castor.Client, name), getattr(castor.AsyncClient, name)
        if name != "encode_stream":  # which takes asynchronous iterables too
            mine, other = inspect.signature(blocking), inspect.signature(awaitable)
            assert mine.parameters == other.parameters, name


def test_calls(server: Server, client: castor.Client) -> None:
    async def run() -> None:
        async with castor.AsyncClient(server.target) as made:
            await made.wait_ready(10)
            rows = await asyncio.gather(*(made.encode(text, model="minilm") for text in TEXTS))
            assert abs(np.stack(rows) - client.encode(TEXTS, model="minilm")).max() < 2e-5
            many = await made.encode(["a"] * 600, model="minilm", show_progress_bar=True)
            assert many.shape == (600, 384)
            query = await made.encode_query("x", model="prompted")
            assert np.array_equal(query, client.encode_query("x", model="prompted"))
            assert len(await made.models()) == 8
            ranked = await made.rank("a", ["b"] * 300, 2, model="cross")
            assert ranked == client.rank("a", ["b"] * 300, 2, model="cross")
            assert (await made.tokenize("a dam", model="minilm")).ids.tolist() == [
                101,
                1037,
                5477,
                102,
            ]
            q, k, v = arrays(1000)
            async with made.shared_memory(1 << 18) as memory:
                output = memory.array(q.shape)
                await made.attend(memory.put(q), k, v, memory=memory, output=output)
                assert abs(output - softmax_attention(q, k, v)).max() < 1e-5
            with pytest.raises(castor.ModelNotFoundError):
                await made.encode("a", model="missing")

    asyncio.run(run())


def test_streams(server: Server, client: castor.Client) -> None:
    texts = [f"text {i}" for i in range(400)]
    want = client.encode(texts, model="minilm")
    taken = 0

    async def source():
        nonlocal taken
        for text in texts:
            taken += 1
            await asyncio.sleep(0)
            yield text

    async def run() -> None:
        async with castor.AsyncClient(server.target) as made:
            for given in (texts, source()):
                got = [row async for row in made.encode_stream(given, model="minilm")]
                assert np.array_equal(got, want)
            stream = made.encode_stream(source(), model="minilm", in_flight=1)
            await anext(stream)
            await stream.aclose()
            with pytest.raises(castor.InvalidFieldError) as caught:
                wrong = ["a"] * 300 + ["word " * 300]
                async for _ in made.encode_stream(wrong, model="minilm", truncate=False):
                    pass
            assert caught.value.index == 300

    asyncio.run(run())


def test_a_client_may_be_used_from_one_loop_after_another(server: Server) -> None:
    made = castor.AsyncClient(server.target)

    async def run() -> tuple[int, ...]:
        return (await made.encode(["a"], model="minilm")).shape

    assert [asyncio.run(run()) for _ in range(3)] == [(1, 384)] * 3


def test_a_cancelled_call_leaves_the_client_usable(server: Server) -> None:
    async def run() -> None:
        async with castor.AsyncClient(server.target) as made:
            long = asyncio.create_task(made.encode(["word " * 400] * 2000, model="minilm"))
            await asyncio.sleep(0)  # it begins
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            assert (await made.encode("a", model="minilm")).shape == (384,)

    asyncio.run(run())
