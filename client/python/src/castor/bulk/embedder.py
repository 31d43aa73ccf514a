"""Columns of vectors for columns of texts, by one server or several."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from castor import errors, fields, tensors, texts
from castor.aio import AsyncClient
from castor.answers import Checker
from castor.texts import Text
from castor.v1 import encoder_pb2, kernel_pb2, model_pb2, tensor_pb2

MOST_TEXTS = 128  # of a request: with 256, castor-load reached 10 % less (MiniLM, int8)
IN_FLIGHT = 8  # calls to each server: a batch that runs, one that waits, and some to spare
CALL_SECONDS = 600.0
START_SECONDS = 60.0
PROBE = ("A beaver builds a dam.", "Interest rates rose.")
# What tells models apart, beside the row of the probe.
_MODEL = ("hidden_size", "layers", "parameters", "max_tokens", "vocabulary_size")
# Errors that one text of a request may cause, although they do not name it.
_OF_A_TEXT = (errors.TooLargeError, errors.NonFiniteInputError, errors.InternalError)


class ModelChangedError(RuntimeError):
    """A server's model is not the one that earlier rows come from."""


class _Server:
    def __init__(self, client: AsyncClient) -> None:
        self.client, self.failures, self.lock = client, 0, asyncio.Lock()
        self.checked = False  # whether it has the right model


class Embedder:
    """Sends texts in requests of up to 128, `in_flight` at a time to each of the servers.

    A request that fails because of a server is sent again, to whichever has room, for up to
    `patience` seconds. A text that fails has an error in place of its row. `options` are
    castor.texts.EncodeOptions, and `output`. Used in one event loop, by `async with`.
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        pairs: bool = False,
        in_flight: int = IN_FLIGHT,
        patience: float = 600.0,
        client: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.options = {"output": "pooled", "priority": "low", **options}
        self.output, self.precision = self.options["output"], options.get("precision", "float32")
        if self.precision in ("int8", "uint8") and options.get("ranges") is None:
            raise ValueError(f"precision {self.precision!r} needs ranges")
        if in_flight < 1 or not targets:
            raise ValueError("in_flight and targets must have at least one")
        self._template = texts.request(encoder_pb2.EncodeRequest, [], 0, self.options)
        self._targets, self._client, self._pairs = list(targets), dict(client or {}), pairs
        self._in_flight, self._patience, self._checker = in_flight, patience, Checker(quiet=True)
        self.model: dict[str, Any] = {}  # what tells it from others
        self.probe: dict[str, float] = {}  # the row of a known text, as float32
        self.kernels: set[str] = set()  # that answered
        self.waits = dict.fromkeys(("input", "server", "output"), 0.0)  # seconds, of all calls
        self.cause = "input"  # whom a call waits for that could be in flight

    async def __aenter__(self) -> Embedder:
        self._credits, self._last = asyncio.Queue[_Server](), time.monotonic()
        self._stack = AsyncExitStack()
        self._servers = [_Server(self._connect(target)) for target in self._targets]
        for server in self._servers * self._in_flight:
            self._credits.put_nowait(server)
        try:
            await self._first(min(self._patience, START_SECONDS))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _connect(self, target: str) -> AsyncClient:
        client = AsyncClient(target, **self._client)
        self._stack.push_async_callback(client.close)
        return client

    def move(self, number: int, target: str) -> None:
        """The server of this number is at another address now."""
        self._servers[number].client = self._connect(target)

    async def _first(self, patience: float) -> None:
        """Returns when one server has shown its model; others do so before their first call."""
        began = time.monotonic()
        for server in cycle(self._servers):
            try:
                return await self._check(server)
            except errors.CastorError as error:
                await asyncio.sleep(self._delay(server, error, began, patience))

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns of columns(), once a server has answered."""
        row = pa.list_(pa.from_numpy_dtype(np.dtype(self.dtype)), self.width)
        name = "embedding" if self.output == "pooled" else self.output
        made = {name: pa.list_(row) if self.ragged else row}
        if self.output == "sparse":
            made = {"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())}
        return {**made, "token_count": pa.int32(), "truncated": pa.bool_(), "error": pa.string()}

    async def columns(
        self,
        first: Sequence[str | None],
        second: Sequence[str | None] | None = None,
        failed: Mapping[int, str] | None = None,
    ) -> dict[str, pa.Array]:
        """A column of vectors for a column of texts, or of pairs of texts.

        Rows that have no text, or an error in `failed`, have an error. Their vectors are of NaN, or
        of 0 where integers are asked for: pyarrow cannot read null ones back from Parquet.
        """
        inputs: list[Any] = [*first] if second is None else [*zip(first, second)]
        chunk = _Chunk(self, inputs, failed or {})
        work = [asyncio.ensure_future(self._encode(chunk, part)) for part in chunk.parts()]
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
        return chunk.arrays()

    async def _encode(self, chunk: _Chunk, places: list[int]) -> None:
        """The rows of these places. Errors that a text causes are its own alone."""
        try:
            answer = await self._call(self._request([chunk.inputs[place] for place in places]))
        except errors.CastorError as error:
            named = re.fullmatch(r"texts\.\w+\[(\d{1,9})\]", error.field)
            large = error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            if not named and not large and not isinstance(error, _OF_A_TEXT):
                raise
            blamed = int(named[1]) if named else 0
            parts = [places[:blamed], places[blamed + 1 :]]
            if named or len(places) == 1:
                message = error.message.removeprefix(f"{error.field}: ")
                chunk.errors[places[blamed]] = f"{error.reason or error.code.name}: {message}"
            else:
                parts = [places[: len(places) // 2], places[len(places) // 2 :]]
            await asyncio.gather(*(self._encode(chunk, part) for part in parts if part))
        else:
            chunk.take(places, answer)

    def _request(self, inputs: Sequence[Text]) -> Any:
        made = texts.request(encoder_pb2.EncodeRequest, inputs, 0, {})
        made.MergeFrom(self._template)
        return made

    async def _call(self, request: Any) -> Any:
        """The checked answer of whichever server has room first."""
        began = 0.0  # its failures
        while True:
            self.tick()
            server, delay = await self._credits.get(), 0.0
            self.tick()
            try:
                await self._check(server)
                answer = await self._ask(server, "EncoderService/Encode", request)
                self._checker.check(request, answer)
                server.failures = 0
                name = fields.name_of(kernel_pb2.KernelName.DESCRIPTOR, answer.kernel.name)
                self.kernels.add(f"{name} ({answer.kernel.backend})")
                return answer
            except errors.CastorError as error:
                began = began or time.monotonic()
                delay = self._delay(server, error, began, self._patience)
            finally:
                asyncio.get_running_loop().call_later(delay, self._free, server)

    def _free(self, server: _Server) -> None:
        self.tick()
        self._credits.put_nowait(server)

    def _delay(self, server: _Server, error: errors.CastorError, began: float, most: float) -> Any:
        """Seconds until this server is asked again; raises what another attempt cannot mend."""
        lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        again = (*lost, grpc.StatusCode.DEADLINE_EXCEEDED)
        server.checked &= error.code not in lost
        late = time.monotonic() - began > most
        if error.final or late or (error.retry_after is None and error.code not in again):
            raise error
        server.failures += 1
        return max(error.retry_after or 0.0, min(2.0, 0.1 * 2.0 ** min(server.failures, 5)))

    def tick(self, cause: str | None = None) -> None:
        """Counts the time of all calls since the last tick; then idle ones wait for `cause`."""
        now, idle = time.monotonic(), self._credits.qsize()
        passed, self._last = now - self._last, now
        self.waits[self.cause] += passed * idle
        self.waits["server"] += passed * (len(self._servers) * self._in_flight - idle)
        self.cause = cause or self.cause

    async def _ask(self, server: _Server, name: str, request: Any) -> Any:
        """One attempt: a second one may be for another server, or this one at a new address."""
        with server.client._session(CALL_SECONDS) as session:
            return await session.call(name, request, False)

    async def _check(self, server: _Server) -> None:
        """Sees that the server has the model that the first one had, unless that is known."""
        async with server.lock:
            if server.checked:
                return
            probe = self._request([PROBE if self._pairs else PROBE[0]])
            for name in ("ranges", "output_type"):
                probe.ClearField(name)
            answer = await self._ask(server, "EncoderService/Encode", probe)
            Checker(quiet=True).check(probe, answer)
            asked = model_pb2.GetModelRequest(name=answer.model)
            model = await self._ask(server, "ModelService/GetModel", asked)
            self._compare(server.client.target, model, answer)
            server.checked = True

    def _compare(self, target: str, model: Any, answer: Any) -> None:
        dtype = "INT8" if model.HasField("int8") else tensor_pb2.DataType.Name(model.dtype)
        found = {"family": model.family, "dtype": dtype}
        found |= {name: int(getattr(model, name)) for name in _MODEL}
        if self.output == "sparse":
            probe, width = dict(zip(answer.sparse.indices, answer.sparse.values)), 1
        else:
            rows = tensors.from_message(answer.output)
            probe, width = dict(enumerate(rows.reshape(-1).tolist())), rows.shape[1]
        row = {str(place): value for place, value in probe.items()}
        if self.model:
            same_model(f"the model at {target}", self.model, self.probe, found, row)
        self.model, self.probe = self.model or found, self.probe or row
        self.ragged = self.output == "token_embeddings" or bool(model.token_labels)
        self.width = -(-width // 8) if "binary" in self.precision else width
        self.dtype = {"binary": "i1", "ubinary": "u1"}.get(self.precision, self.precision)


def same_model(what: str, model: Any, probe: Any, found: Any, row: Any) -> None:
    """Raises ModelChangedError unless the model is the same, and gives the same row for a text, up
    to what processors differ in."""
    for name, before in model.items():
        if found.get(name, before) != before:
            raise ModelChangedError(f"{what} has the {name} {found[name]}, not {before}")
    dot = sum(value * row.get(place, 0.0) for place, value in probe.items())
    norms = [sum(value * value for value in each.values()) for each in (probe, row)]
    if abs(norms[0] - norms[1]) > 0.02 * norms[0] or dot < 0.999 * (norms[0] * norms[1]) ** 0.5:
        raise ModelChangedError(f"{what} gives another vector for {PROBE[0]!r} than before")


class _Chunk:
    """Texts, or pairs, and their rows on their way into columns."""

    def __init__(self, embedder: Embedder, inputs: list[Any], failed: Mapping[int, str]) -> None:
        self.inputs, self._types, self._sparse = inputs, embedder.types, embedder.output == "sparse"
        self.errors = [failed.get(place) for place in range(len(inputs))]
        self._tokens, self._cut = np.zeros(len(inputs), np.int32), np.zeros(len(inputs), np.bool_)
        self._lengths = np.zeros(len(inputs), np.int32)
        self._ragged = self._sparse or embedder.ragged
        shape = (0 if self._ragged else len(inputs), embedder.width)
        self._rows: NDArray[Any] = np.zeros(shape, embedder.dtype)
        if self._rows.dtype.kind == "f":
            self._rows.fill(np.nan)
        self._pieces = dict[int, Any]()  # of ragged rows

    def parts(self) -> list[list[int]]:
        """Places of as many texts as fit into a request, in their order: sorting them by length
        first was not found to be faster."""
        made, part, characters = list[list[int]](), list[int](), 0
        for place, text in enumerate(self.inputs):
            parts = text if isinstance(text, tuple) else (text,)
            if self.errors[place] is None and None in parts:
                self.errors[place] = "there is no text"
            if self.errors[place] is None:
                part.append(place)
                characters += sum(map(len, parts))
            if len(part) >= MOST_TEXTS or characters >= texts.MOST_CHARACTERS:
                made.append(part)
                part, characters = [], 0
        return [*made, part] if part else made

    def take(self, places: list[int], answer: Any) -> None:
        self._tokens[places], self._cut[places] = answer.token_counts, answer.truncated
        if self._sparse:
            lengths, rows = answer.sparse.lengths, answer.sparse
            pieces: Any = np.array(rows.indices, np.int32), np.array(rows.values, np.float32)
        else:  # a view of the answer's bytes
            lengths, pieces = answer.lengths, (tensors.from_message(answer.output),)
        if self._ragged:
            self._lengths[places] = lengths
            for place, end, length in zip(places, np.cumsum(lengths).tolist(), lengths):
                self._pieces[place] = [piece[end - length : end] for piece in pieces]
        else:
            self._rows[places] = pieces[0]

    def arrays(self) -> dict[str, pa.Array]:
        good = np.array([each is None for each in self.errors], np.bool_)
        valid = None if good.all() else pa.array(good).buffers()[1]
        *names, _, _, _ = self._types
        made = {name: self._column(self._types[name], n, valid) for n, name in enumerate(names)}
        made["token_count"] = pa.array(self._tokens, mask=~good)
        made["truncated"] = pa.array(self._cut, mask=~good)
        made["error"] = pa.array(self.errors, pa.string())
        return made

    def _column(self, kind: Any, number: int, valid: Any) -> pa.Array:
        if not self._ragged:
            values = pa.array(self._rows.reshape(-1))
            return pa.Array.from_buffers(kind, len(self.errors), [None], children=[values])
        inner, pieces = (
            kind.value_type,
            [self._pieces[each][number] for each in sorted(self._pieces)],
        )
        flat = (
            np.concatenate(pieces) if pieces else self._rows[:, 0] if self._sparse else self._rows
        )
        values = pa.array(flat.reshape(-1))
        if not self._sparse:
            values = pa.Array.from_buffers(inner, len(flat), [None], children=[values])
        offsets = pa.py_buffer(np.cumsum([0, *self._lengths], dtype=np.int32))
        children = [values.cast(inner)]
        return pa.Array.from_buffers(kind, len(self.errors), [valid, offsets], children=children)
