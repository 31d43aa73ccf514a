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
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from castor import channel, errors, serving
from castor.bulk import inputs, outputs
from castor.bulk.embedder import IN_FLIGHT, MOST_TEXTS, Embedder

OPEN_PIECES = 4  # or as many rows, read and not yet written
PIECE_BYTES = 4 << 20
MOST_ROWS = 8192  # of a piece
RANGE_TEXTS = 1024
# What a folder's rows must have in common: options of requests, and of the input.
_OPTIONS = ["output", "precision", "prompt_name", "prompt", "normalize_embeddings", "truncate_dim"]
_OPTIONS += ["max_tokens", "truncate", "task"]
_COLUMNS = ["text", "pair", "keep", "keep_as_text", "block_rows"]
_COUNTS = itemgetter("rows", "failed", "truncated", "tokens")


class Run:
    """One run. Files are read and written in one thread, the rest is done in the event loop."""

    def __init__(self, flags: argparse.Namespace, folder: outputs.Folder) -> None:
        self._flags, self._folder, self._sources = flags, folder, inputs.find(flags.inputs)
        columns = flags.text, flags.pair, flags.keep, flags.keep_as_text
        self._reader = partial(inputs.Reader, *columns)
        self._began, self._totals = time.monotonic(), Counter[str]()
        self._spent = dict.fromkeys(("input", "server", "output"), 0.0)  # seconds
        self.problems: list[str] = []

    async def run(self, targets: list[str], folder: Path | None) -> None:
        """`folder`: of the model of this run's own server."""
        flags, loop = self._flags, asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        tls = channel.TLS(ca_file=flags.ca) if flags.ca else flags.tls or None
        given = {name: getattr(flags, name) for name in (*_OPTIONS, "in_flight", "patience")}
        given |= {"model": None if folder else flags.model, "pairs": bool(flags.pair)}
        given |= {"client": {"tls": tls, "token_file": flags.token_file}}
        what = {name: getattr(flags, name) for name in (*_OPTIONS, *_COLUMNS)}
        if flags.precision in ("int8", "uint8"):
            given["ranges"] = await self._ranges(targets, given)
            what["ranges"] = hashlib.sha256(given["ranges"].tobytes()).hexdigest()
        async with Embedder(targets, **given) as self._embedder:
            model = await asyncio.to_thread(_identity, folder) if folder else {}
            self._folder.begin(what, model | self._embedder.model, self._embedder.probe)
            self._reports = asyncio.ensure_future(self._report())  # until the loop ends
            await self._embed(2 * MOST_TEXTS * flags.in_flight * len(targets))

    async def _ranges(self, targets: list[str], given: dict[str, Any]) -> Any:
        """What int8 and uint8 stand for: the folder's, or else those of the first texts."""
        path = self._folder.path / "ranges.npy"
        if not path.exists():
            first = (RANGE_TEXTS, RANGE_TEXTS, lambda _: None, lambda _, part: part == 0)
            reader = self._reader(*first)
            piece = await asyncio.to_thread(next, reader.read(self._sources), None)
            if not isinstance(piece, inputs.Piece):
                raise ValueError(f"there are no texts to take ranges of: {piece}")
            async with Embedder(targets, **{**given, "precision": "float32"}) as made:
                found = await made.columns(piece.texts, piece.pairs, piece.failed)
                good = found["embedding"].filter(found["error"].is_null())
                rows = good.flatten().to_numpy().reshape(-1, made.width)
            if len(rows) < 2:
                raise ValueError(f"there are too few texts to take ranges of: write them to {path}")
            aside = path.with_name(f".ranges-{os.getpid()}.npy")
            np.save(aside, np.stack([rows.min(0), rows.max(0)]))
            with suppress(FileExistsError):  # another share was first: take its
                os.link(aside, path)
            aside.unlink()
        return np.load(path, allow_pickle=False).astype(np.float32)

    async def _embed(self, enough: int) -> None:
        """Reads pieces and writes them in their order; servers have `enough` rows between."""
        made, open_ = self._embedder, deque[tuple[inputs.Piece, asyncio.Future[Any]]]()
        width = np.dtype(made.dtype).itemsize * made.width * (64 if made.ragged else 1)
        rows = 1 << min(max((PIECE_BYTES // width).bit_length() - 1, 6), MOST_ROWS.bit_length() - 1)
        reader = self._reader(rows, self._flags.block_rows, self._check, self._wanted)
        pieces = reader.read(self._sources)
        parts = outputs.Parts(self._folder)
        try:
            while piece := await self._timed("input", asyncio.to_thread(next, pieces, None)):
                if isinstance(piece, str):
                    self.problems.append(piece)
                    continue
                columns = made.columns(piece.texts, piece.pairs, piece.failed)
                open_.append((piece, asyncio.ensure_future(columns)))
                while sum(len(each.texts) for each, _ in open_) >= max(OPEN_PIECES * rows, enough):
                    await self._write(parts, *open_.popleft())
            while open_:
                await self._write(parts, *open_.popleft())
        finally:
            for _, task in open_:
                task.cancel()
            await asyncio.gather(*(task for _, task in open_), return_exceptions=True)
            await asyncio.to_thread(parts.close)

    async def _write(self, parts: outputs.Parts, piece: inputs.Piece, task: Any) -> None:
        made = await self._timed("server", task)
        write = asyncio.to_thread(parts.write, piece, made, self._embedder.kernels)
        self._totals.update(await self._timed("output", write))

    async def _timed(self, what: str, work: Any) -> Any:
        began = time.monotonic()
        try:
            return await work
        finally:
            self._spent[what] += time.monotonic() - began

    def _check(self, source: inputs.Source) -> None:
        found = inputs.digest(source.path)
        if self._folder.hashes.setdefault(source.name, found) != found:
            raise ValueError(f"it has changed since {self._folder.path} has rows of it")

    def _wanted(self, source: inputs.Source, part: int) -> bool:
        share, shares = self._flags.shard
        mine = (source.number + part) % shares == share
        return mine and (source.name, part) not in self._folder.parts

    async def _report(self) -> None:
        terminal = sys.stderr.isatty()
        start, end = ("\r", "\x1b[K") if terminal else ("", "\n")
        while not self._flags.quiet:
            await asyncio.sleep(1.0 if terminal else 30.0)
            print(f"{start}{self}", end=end, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        seconds, whole = time.monotonic() - self._began, sum(self._spent.values()) or 1.0
        rows, failed, cut, tokens = _COUNTS(self._totals)
        shares = ", ".join(f"{name} {value / whole:.0%}" for name, value in self._spent.items())
        return (
            f"{rows:,} rows ({failed:,} failed, {cut:,} cut), {tokens:,} tokens in "
            f"{seconds:,.1f} s: {rows / seconds:,.1f} texts/s, {tokens / seconds:,.0f} tokens/s; "
            f"waited for {shares}"
        )


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


def _block(text: str) -> int:
    if not text.isdigit() or int(text) < 1 or int(text) % MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of {MOST_ROWS}")
    return int(text)


# A table: flag, type or default, metavar, help.
# fmt: off
_FLAGS: tuple[tuple[str, Any, str, str], ...] = (
    ("to", str, "DIR", "the folder for rows/ and manifest.jsonl"),
    ("model", str, "DIR|NAME", "a model's folder, for a server of its own; with --servers a name"),
    ("text", str, "COLUMN", "of texts; default: text, or the only one"),
    ("pair", str, "COLUMN", "of second texts, for pairs"),
    ("output", "pooled", "NAME", "pooled, token_embeddings, sparse, logits or scores"),
    ("precision", "float32", "NAME", "float32, float16, int8, uint8, binary or ubinary"),
    ("prompt-name", str, "NAME", ""),
    ("prompt", str, "TEXT", ""),
    ("truncate-dim", int, "N", "keep this many dimensions"),
    ("max-tokens", int, "N", ""),
    ("task", str, "NAME", "an adapter of the model"),
    ("in-flight", IN_FLIGHT, "N", "calls to each server"),
    ("patience", 600.0, "SECONDS", "with servers that fail"),
    ("block-rows", _block, "N", "of a part, where a file has no row groups (65536)"),
    ("shard", _shard, "I/N", "a share of the parts; else $JOB_COMPLETION_INDEX/$JOB_COMPLETIONS"),
    ("ca", str, "FILE", "authorities to trust; implies --tls"),
    ("token-file", str, "FILE", ""),
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
        default = None if callable(kind) else kind
        more: Any = {"type": type(kind) if default else kind, "default": default}
        told += f" ({default})" if default else ""
        made.add_argument(f"--{name}", required=name == "to", metavar=metavar, help=told, **more)
    made.add_argument("--servers", nargs="+", metavar="ADDRESS", help="else $CASTOR_SERVER")
    made.add_argument("--server-flag", action="append", default=[], help="of the own server")
    made.add_argument("--keep", nargs="*", metavar="COLUMN", help="else id, if there is one")
    text = "whole numbers too, which CSV's and JSON's columns otherwise stay if they begin so"
    made.add_argument("--keep-as-text", action="store_true", help=text)
    yes_no = argparse.BooleanOptionalAction
    made.add_argument("--normalize", dest="normalize_embeddings", action=yes_no)
    made.add_argument("--truncate", action=yes_no, help="--no-truncate: long texts fail")
    made.add_argument("--tls", action="store_true")
    made.add_argument("--quiet", action="store_true", help="no progress")
    share, shares = (os.environ.get(f"JOB_COMPLETION{name}") for name in ("_INDEX", "S"))
    made.set_defaults(block_rows="65536", shard=f"{share}/{shares}" if share and shares else "0/1")
    return made


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    # Arrow's own pool takes new pages for each piece, which the kernel has to clear.
    pa.set_memory_pool(pa.system_memory_pool())
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(closing(outputs.Folder(flags.to, *flags.shard)))
            run, model = Run(flags, folder), None
            targets = flags.servers or [os.environ.get("CASTOR_SERVER", "127.0.0.1:50051")]
            if flags.model and not flags.servers:
                model, options = Path(flags.model), {"flags": flags.server_flag, "restart": True}
                own = stack.enter_context(serving.start_server({"model": model}, **options))
                targets = [own.address]
            asyncio.run(run.run(targets, model))
        print(run)
    except KeyboardInterrupt:
        print("\ncastor-embed: interrupted; run it again to go on", file=sys.stderr)
        return 130
    except (errors.CastorError, OSError, ValueError, RuntimeError, TypeError) as error:
        print(f"castor-embed: {error}", file=sys.stderr)
        return 1
    for problem in run.problems:
        print(f"castor-embed: {problem}", file=sys.stderr)
    return 1 if run.problems else 0


def program() -> None:
    sys.exit(main())
