"""Columns of vectors for columns of texts, by one server or several."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

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
        self._options = {"output": "pooled", "priority": "low", **options}
        self.output, self.precision = self._options["output"], options.get("precision", "float32")
        if self.precision in ("int8", "uint8") and options.get("ranges") is None:
            raise ValueError(f"precision {self.precision!r} needs ranges")
        if in_flight < 1 or not targets:
            raise ValueError("in_flight and targets must have at least one")
        self._probe: Text = PROBE if pairs else PROBE[0]
        self._targets, self._client = list(targets), dict(client or {})
        self._in_flight, self._patience, self._checker = in_flight, patience, Checker(quiet=True)
        self.model: dict[str, Any] = {}  # what tells it from others
        self.probe: dict[str, float] = {}  # the row of a known text, as float32
        self.kernels: set[str] = set()  # that answered

    async def __aenter__(self) -> Embedder:
        self._credits = asyncio.Queue[_Server]()
        async with AsyncExitStack() as stack:
            clients = [AsyncClient(target, **self._client) for target in self._targets]
            for client in clients:
                await stack.enter_async_context(client)
            for server in [_Server(client) for client in clients] * self._in_flight:
                self._credits.put_nowait(server)
            # Shows the model, which other servers are compared with before their first call.
            await self._call(self._request([self._probe]), min(self._patience, START_SECONDS))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

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
        inputs: Sequence[Any] = first if second is None else [*zip(first, second)]
        failures, answers = dict(failed or {}), list[tuple[list[int], Any]]()
        parts = [*_parts(inputs, failures)]
        work = [
            asyncio.ensure_future(self._encode(inputs, each, answers, failures)) for each in parts
        ]
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
        answers.sort(key=lambda each: each[0][0])
        return self._columns(len(inputs), answers, failures)

    async def _encode(
        self, inputs: Sequence[Any], places: list[int], answers: list[Any], failures: dict[int, str]
    ) -> None:
        """Adds the answer for these places. Errors that a text causes are its own alone."""
        try:
            request = self._request([inputs[place] for place in places])
            answers.append((places, await self._call(request, self._patience)))
        except errors.CastorError as error:
            named = re.fullmatch(r"texts\.\w+\[(\d{1,9})\]", error.field)
            large = error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            if not named and not large and not isinstance(error, _OF_A_TEXT):
                raise
            blamed = int(named[1]) if named else 0
            parts = [places[:blamed], places[blamed + 1 :]]
            if named or len(places) == 1:
                message = error.message.removeprefix(f"{error.field}: ")
                failures[places[blamed]] = f"{error.reason or error.code.name}: {message}"
            else:
                parts = [places[: len(places) // 2], places[len(places) // 2 :]]
            again = (self._encode(inputs, part, answers, failures) for part in parts if part)
            await asyncio.gather(*again)

    def _request(self, inputs: Sequence[Text], **changed: Any) -> Any:
        return texts.request(encoder_pb2.EncodeRequest, inputs, 0, {**self._options, **changed})

    async def _call(self, request: Any, patience: float) -> Any:
        """The checked answer of whichever server has room first."""
        began = 0.0  # its failures
        while True:
            server, delay = await self._credits.get(), 0.0
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
                delay = self._delay(server, error, time.monotonic() - began > patience)
            finally:
                asyncio.get_running_loop().call_later(delay, self._credits.put_nowait, server)

    def _delay(self, server: _Server, error: errors.CastorError, late: bool) -> float:
        """Seconds until this server is asked again; raises what another attempt cannot mend."""
        lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        again = (*lost, grpc.StatusCode.DEADLINE_EXCEEDED)
        server.checked &= error.code not in lost
        if error.final or late or (error.retry_after is None and error.code not in again):
            raise error
        server.failures += 1
        return max(error.retry_after or 0.0, min(2.0, 0.1 * 2.0 ** min(server.failures, 5)))

    async def _ask(self, server: _Server, name: str, request: Any) -> Any:
        """One attempt: a second one may be for another server, or this one at a new address."""
        with server.client._session(CALL_SECONDS) as session:
            return await session.call(name, request, False)

    async def _check(self, server: _Server) -> None:
        """Sees that the server has the model that the first one had, unless that is known."""
        async with server.lock:
            if server.checked:
                return
            probe = self._request([self._probe], precision=None, ranges=None)
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
        ragged = self.output in ("token_embeddings", "sparse")
        self.ragged = ragged or bool(model.token_labels)  # rows of a text: not one, but several
        self.width = -(-width // 8) if "binary" in self.precision else width
        self.dtype = {"binary": "i1", "ubinary": "u1"}.get(self.precision, self.precision)

    def _columns(self, rows: int, answers: Any, failures: Mapping[int, str]) -> dict[str, pa.Array]:
        """The rows of the answers at their places, which ascend."""
        good = np.zeros(rows, np.bool_)
        good[[place for places, _ in answers for place in places]] = True

        def spread(values: Any, missing: Any = 0) -> Any:
            if not good.all():
                made = np.full((rows, *values.shape[1:]), missing, values.dtype)
                made[good] = values
                return made
            return values

        found = [answer for _, answer in answers]
        made: dict[str, pa.Array] = {}
        if self.output == "sparse":
            sparse = [each.sparse for each in found]
            lengths = _joined(sparse, "lengths", np.int32)
            made["indices"] = pa.array(_joined(sparse, "indices", np.int32))
            made["values"] = pa.array(_joined(sparse, "values", np.float32))
        else:
            lengths = _joined(found, "lengths", np.int32)
            views = (tensors.from_message(each.output) for each in found)
            vectors = np.concatenate([np.zeros((0, self.width), self.dtype), *views])
            if not self.ragged:
                vectors = spread(vectors, np.nan if vectors.dtype.kind == "f" else 0)
            flat, name = pa.array(vectors.reshape(-1)), self.output.replace("pooled", "embedding")
            made[name] = pa.FixedSizeListArray.from_arrays(flat, self.width)
        if self.ragged:
            offsets = pa.array(np.cumsum([0, *spread(lengths)], dtype=np.int32))
            for name, each in made.items():
                made[name] = pa.ListArray.from_arrays(offsets, each, mask=pa.array(~good))
        tokens = _joined(found, "token_counts", np.int32)
        made["token_count"] = pa.array(spread(tokens), mask=~good)
        cut = _joined(found, "truncated", np.bool_)
        made["truncated"] = pa.array(spread(cut), mask=~good)
        made["error"] = pa.array([failures.get(row) for row in range(rows)], pa.string())
        return made


def _joined(messages: Sequence[Any], name: str, dtype: Any) -> Any:
    values = [np.array(getattr(each, name), dtype) for each in messages]
    return np.concatenate([np.zeros(0, dtype), *values])


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


def _parts(inputs: Sequence[Any], failures: dict[int, str]) -> Iterator[list[int]]:
    """Places of as many texts as fit into a request, in their order: sorting them by length first
    was not found to be faster."""
    part, characters = list[int](), 0
    for place, text in enumerate(inputs):
        if place in failures:
            continue
        pieces = text if isinstance(text, tuple) else (text,)
        if None in pieces:
            failures[place] = "there is no text"
            continue
        part.append(place)
        characters += sum(map(len, pieces))
        if len(part) >= MOST_TEXTS or characters >= texts.MOST_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part
