"""castor-embed: the command line, and the run from pieces of inputs to parts of outputs."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from castor import channel, errors, serving
from castor.bulk import inputs, outputs
from castor.bulk.embedder import IN_FLIGHT, Embedder

OPEN_PIECES = 4  # read and not yet written: enough for the servers while one is written
PIECE_BYTES = 16 << 20
MOST_ROWS = 8192  # of a piece
RANGE_TEXTS = 1024
_OPTIONS = ("output", "precision", "prompt_name", "prompt", "normalize_embeddings", "truncate_dim")
_OPTIONS += ("max_tokens", "truncate", "task", "kernel")  # type: ignore[assignment]


class Run:
    """One run. Reading and writing have threads; everything else is in the event loop."""

    def __init__(self, flags: argparse.Namespace, folder: outputs.Folder) -> None:
        self._flags, self._folder, self._sources = flags, folder, inputs.find(flags.inputs)
        self._reader = partial(inputs.Reader, flags.text, flags.pair, flags.keep)
        self._shared = {"pairs": flags.pair is not None, "in_flight": flags.in_flight}
        tls = channel.TLS(ca_file=flags.ca) if flags.ca else flags.tls or None
        self._shared |= {"client": {"tls": tls, "token_file": flags.token_file}}
        self._shared |= {"patience": flags.patience, "priority": flags.priority}
        self._began, self._shown = time.monotonic(), 0.0
        self._totals = dict.fromkeys(("rows", "failed", "truncated", "tokens"), 0)
        self.problems: list[inputs.Problem] = []
        self._tasks = set[asyncio.Task[Any]]()

    async def run(self, targets: list[str], local: serving.LocalServer | None) -> None:
        flags, model = self._flags, {}
        options = {name: getattr(flags, name) for name in _OPTIONS}
        given = {**self._shared, **options, "model": None if local else flags.model}
        what = {**options, "text": flags.text, "pair": flags.pair, "keep": flags.keep}
        what["block_rows"] = flags.block_rows
        if flags.precision in ("int8", "uint8"):
            given["ranges"] = await self._ranges(targets, given)
            what["ranges"] = hashlib.sha256(given["ranges"].tobytes()).hexdigest()
        async with Embedder(targets, **given) as self._embedder:
            if local:
                model = await asyncio.to_thread(_identity, Path(flags.model))
            self._folder.begin(what, model | self._embedder.model, self._embedder.probe)
            queue: asyncio.Queue[Any] = asyncio.Queue()
            self._room = asyncio.Semaphore(OPEN_PIECES)
            writer = self._task(self._write(queue))
            self._task(self._read(queue))
            if local:
                self._task(self._watch(local))
            try:
                while not writer.done():
                    for task in self._tasks:
                        if task.done():
                            task.result()  # raises what ended it
                    running = [task for task in self._tasks if not task.done()]
                    await asyncio.wait(running, timeout=1.0, return_when="FIRST_COMPLETED")
                    self._show()
                writer.result()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self._tasks = {each for each in self._tasks if not each.done() or each.exception()}
        self._tasks.add(made := asyncio.create_task(work))
        return made

    async def _ranges(self, targets: list[str], given: dict[str, Any]) -> Any:
        """What int8 and uint8 stand for: a file's, the folder's, or those of the first texts."""
        path = Path(self._flags.ranges or self._folder.path / "ranges.npy")
        if not path.exists() and not self._flags.ranges:
            reader = self._reader(RANGE_TEXTS, RANGE_TEXTS, lambda _, part: part == 0)
            piece = await asyncio.to_thread(_next, reader.read(self._sources))
            if not isinstance(piece, inputs.Piece):
                raise ValueError(f"there are no texts to take ranges of: {piece}")
            async with Embedder(targets, **{**given, "precision": "float32"}) as made:
                found = await made.columns(piece.texts, piece.pairs, piece.failed)
                rows = found["embedding"].flatten().to_numpy().reshape(-1, made.width)
                rows = rows[found["error"].is_null().to_numpy(zero_copy_only=False)]
            if len(rows) < 2:
                raise ValueError("there are too few texts to take ranges of: give --ranges")
            aside = path.with_name(f".ranges-{os.getpid()}.npy")
            np.save(aside, np.stack([rows.min(0), rows.max(0)]))
            with suppress(FileExistsError):  # another share was first: take its
                os.link(aside, path)
            aside.unlink()
        return np.load(path, allow_pickle=False).astype(np.float32)

    async def _read(self, queue: asyncio.Queue[Any]) -> None:
        """Puts pieces into the queue with the tasks that make their columns."""
        made = self._embedder
        width = np.dtype(made.dtype).itemsize * made.width * (64 if made.ragged else 1)
        rows = 1 << min(max((PIECE_BYTES // width).bit_length() - 1, 6), MOST_ROWS.bit_length() - 1)
        reader = self._reader(rows, self._flags.block_rows, self._wanted)
        pieces, piece = reader.read(self._checked()), object()
        while piece is not None:
            made.tick("output")
            await self._room.acquire()
            made.tick("input")
            piece, task = await asyncio.to_thread(_next, pieces), None
            if isinstance(piece, inputs.Piece):
                task = self._task(made.columns(piece.texts, piece.pairs, piece.failed))
            queue.put_nowait((piece, task))
        made.tick("server")  # for its last answers

    def _checked(self) -> Iterator[inputs.Source]:
        """The sources, but for those that changed since parts of them were done."""
        for source in self._sources:
            try:
                found = inputs.digest(source.path)
                if self._folder.hashes.setdefault(source.name, found) == found:
                    yield source
                    continue
                what = f"it has changed since {self._folder.path} has rows of it"
            except OSError as error:
                what = str(error)
            self.problems.append(inputs.Problem(source, None, what))

    def _wanted(self, source: inputs.Source, part: int) -> bool:
        share, shares = self._flags.shard
        mine = (source.number + part) % shares == share
        return mine and (source.name, part) not in self._folder.parts

    async def _write(self, queue: asyncio.Queue[Any]) -> None:
        with outputs.Parts(self._folder) as parts:
            while True:
                piece, task = await queue.get()
                if piece is None:
                    return
                if task is None:
                    self.problems.append(piece)
                else:
                    made, kernels = await task, self._embedder.kernels
                    counts = await asyncio.to_thread(
                        parts.write, piece, made, self._embedder.types, kernels
                    )
                    for name, count in counts.items():
                        self._totals[name] += count
                self._room.release()

    async def _watch(self, local: serving.LocalServer) -> None:
        """Starts the local server again when it has ended."""
        with ExitStack() as stack:
            while True:
                await asyncio.sleep(0.2)
                if not local.alive:
                    print("castor-embed: the server ended; it is started again", file=sys.stderr)
                    local = stack.enter_context(await asyncio.to_thread(_start, self._flags))
                    self._embedder.move(0, local.address)

    def _show(self) -> None:
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if not self._flags.quiet and now - self._shown >= (1.0 if terminal else 30.0):
            self._shown = now
            start, end = ("\r", "\x1b[K") if terminal else ("", "\n")
            print(f"{start}{self}", end=end, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        seconds, waits = time.monotonic() - self._began, self._embedder.waits
        whole, (rows, failed, cut, tokens) = sum(waits.values()) or 1.0, self._totals.values()
        shares = ", ".join(f"{name} {value / whole:.0%}" for name, value in waits.items())
        return (
            f"{rows:,} rows ({failed:,} failed, {cut:,} cut), {tokens:,} tokens in {seconds:,.1f} "
            f"s: {rows / seconds:,.1f} texts/s, {tokens / seconds:,.0f} tokens/s; waited for "
            f"{shares}"
        )


def _next(pieces: Iterator[Any]) -> Any:
    return next(pieces, None)


def _start(flags: argparse.Namespace) -> serving.LocalServer:
    return serving.start_server({"model": flags.model}, flags=flags.server_flag)


def _identity(folder: Path) -> dict[str, Any]:
    """A model folder's commit, if its path has one as in a hub's cache, and its files' hash."""
    found = hashlib.sha256()
    for each in sorted(folder.rglob("*")):
        if each.is_file():
            found.update(f"{each.relative_to(folder)} {inputs.digest(each)}\n".encode())
    commit = re.search(r"/snapshots/([0-9a-f]{40})(/|$)", str(folder.resolve()))
    return {"sha256": found.hexdigest()} | ({"commit": commit[1]} if commit else {})


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N-1")
    return int(found[1]), int(found[2])


# A table: flag, default or type, metavar, help.
# fmt: off
_FLAGS: tuple[tuple[str, Any, str, str], ...] = (
    ("to", None, "DIR", "the folder for rows/ and manifest.jsonl"),
    ("model", None, "DIR|NAME", "a model's folder, for a server of its own; with --servers a name"),
    ("text", None, "COLUMN", "of texts; default: text, or the only one"),
    ("pair", None, "COLUMN", "of second texts, for pairs"),
    ("output", "pooled", "NAME", "pooled, token_embeddings, sparse, logits or scores"),
    ("precision", "float32", "NAME", "float32, float16, int8, uint8, binary or ubinary"),
    ("ranges", None, "FILE.npy", f"for int8, uint8; default: of the first {RANGE_TEXTS} texts"),
    ("prompt-name", None, "NAME", ""),
    ("prompt", None, "TEXT", ""),
    ("truncate-dim", int, "N", "keep this many dimensions"),
    ("max-tokens", int, "N", ""),
    ("task", None, "NAME", "an adapter of the model"),
    ("kernel", None, "NAME", ""),
    ("priority", "low", "NAME", "low, normal or high"),
    ("in-flight", IN_FLIGHT, "N", "calls to each server"),
    ("patience", 600.0, "SECONDS", "with servers that fail"),
    ("block-rows", 65536, "N", "of a part, where a file has no row groups"),
    ("shard", _shard, "I/N", "a share of the parts; else $JOB_COMPLETION_INDEX/$JOB_COMPLETIONS"),
    ("ca", None, "FILE", "authorities to trust; implies --tls"),
    ("token-file", None, "FILE", ""),
)
# fmt: on


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="castor-embed",
        description="Texts of Parquet, Arrow, JSON lines, CSV or plain lines into Parquet files of "
        "vectors. Run again, it does what is missing.",
        epilog="Exit codes: 0 done, errors of rows are in the column error; 1 an input could not "
        "be read, or the servers failed; 2 wrong flags; 130 interrupted. What is done is kept.",
    )
    made.add_argument("inputs", nargs="+", metavar="IN", help="a file, or a folder of files")
    for name, kind, metavar, told in _FLAGS:
        default, kind = (None, kind) if callable(kind) else (kind, type(kind or ""))
        told += f" ({default})" if default else ""
        more: Any = {"type": kind, "default": default, "metavar": metavar, "help": told}
        made.add_argument(f"--{name}", required=name == "to", **more)
    made.add_argument("--servers", nargs="+", metavar="ADDRESS", help="else $CASTOR_SERVER")
    made.add_argument("--server-flag", action="append", default=[], help="of the own server")
    made.add_argument("--keep", nargs="*", metavar="COLUMN", help="else id, if there is one")
    yes_no = argparse.BooleanOptionalAction
    made.add_argument("--normalize", dest="normalize_embeddings", action=yes_no)
    made.add_argument("--truncate", action=yes_no, help="--no-truncate: long texts fail")
    made.add_argument("--tls", action="store_true")
    made.add_argument("--quiet", action="store_true", help="no progress")
    return made


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    flags = parser.parse_args(arguments)
    share, shares = (os.environ.get(f"JOB_COMPLETION{name}") for name in ("_INDEX", "S"))
    try:
        flags.shard = flags.shard or _shard(f"{share}/{shares}" if share and shares else "0/1")
    except argparse.ArgumentTypeError as error:
        parser.error(f"$JOB_COMPLETION_INDEX and $JOB_COMPLETIONS: {error}")
    if flags.block_rows < 1 or flags.block_rows % MOST_ROWS:
        parser.error(f"--block-rows is not a multiple of {MOST_ROWS}")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(closing(outputs.Folder(flags.to, *flags.shard)))
            run, local = Run(flags, folder), None
            targets = flags.servers or [os.environ.get("CASTOR_SERVER", "127.0.0.1:50051")]
            if flags.model and not flags.servers:
                local = stack.enter_context(_start(flags))
                targets = [local.address]
            asyncio.run(run.run(targets, local))
        print(run)
    except KeyboardInterrupt:
        print("\ncastor-embed: interrupted; run it again to go on", file=sys.stderr)
        return 130
    except (errors.CastorError, OSError, ValueError, RuntimeError, TypeError) as error:
        print(f"castor-embed: {error}", file=sys.stderr)
        return 1
    for problem in run.problems:
        where = "" if problem.part is None else f", row group {problem.part}"
        print(f"castor-embed: {problem.source.path}{where}: {problem.message}", file=sys.stderr)
    return 1 if run.problems else 0


def program() -> None:
    sys.exit(main())
