"""A folder of vectors: a Parquet file for each part of the input, and a manifest of them.

Files are written aside, synced and renamed, and only then entered into the manifest. A run that is
killed leaves nothing that the next one takes for whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from castor.bulk.embedder import same_model
from castor.bulk.inputs import Piece

FORMAT = 1


class Folder:
    """The folder, for one share of the parts. One process at a time may have that."""

    def __init__(self, path: str, share: int = 0, shares: int = 1) -> None:
        self.path = Path(path)
        (self.path / "rows").mkdir(parents=True, exist_ok=True)
        which = f"-{share}-of-{shares}" if shares > 1 else ""
        self._manifest = self.path / f"manifest{which}.jsonl"
        self.parts: dict[tuple[str, int], dict[str, Any]] = {}  # by input and part
        self.hashes: dict[str, str] = {}  # of inputs
        self._header: dict[str, Any] | None = None
        with ExitStack() as locks:
            self._lock(locks, self.path / f".lock{which}", f"-of-{shares}" if which else ".lock")
            for each in sorted(self.path.glob("manifest*.jsonl")):
                self._read(each)
            self._locks = locks.pop_all()

    def close(self) -> None:
        self._locks.close()

    def _lock(self, locks: ExitStack, own: Path, ending: str) -> None:
        """Refuses a second process with this share, and any with another number of shares."""
        with open(self.path / ".turn", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for each in {own, *self.path.glob(".lock*")}:
                if each == own or not each.name.endswith(ending):
                    file = locks.enter_context(open(each, "w"))
                    if taken(file):
                        raise ValueError(f"another castor-embed writes to {self.path}")
                    if each != own:
                        file.close()

    def _read(self, manifest: Path) -> None:
        """Takes what the manifest says that is still there."""
        whole = manifest.read_bytes()
        *lines, torn = whole.split(b"\n")
        if torn and manifest == self._manifest:  # its process was killed while it wrote
            os.truncate(manifest, len(whole) - len(torn))
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                if number == 0:
                    self._header = self._header or entry
                    if entry["format"] != FORMAT:
                        raise ValueError(f"format {entry['format']}, not {FORMAT}")
                    continue
                self.hashes[entry["input"]] = entry["sha256"]
                if (self.path / entry["file"]).stat().st_size == entry["bytes"]:
                    self.parts[entry["input"], entry["part"]] = entry
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{manifest}, line {number + 1}: {error!r}") from None

    def begin(self, options: dict[str, Any], model: dict[str, Any], probe: Any) -> None:
        """Refuses other options and another model than those that the folder was begun with."""
        new = {"format": FORMAT, "options": options, "model": model, "probe": probe}
        old = self._header = self._header or new
        for name in sorted(options.keys() | old["options"].keys()):
            before, now = old["options"].get(name), options.get(name)
            if before != now:
                told = f"{self.path} was begun with {name} {before!r}, not {now!r}"
                raise ValueError(f"{told}: take another folder")
        same_model(f"for {self.path} the model", old["model"], old["probe"], model, probe)

    def enter(self, entry: dict[str, Any]) -> None:
        with open(self._manifest, "ab") as file:
            for each in [entry] if file.tell() else [self._header, entry]:
                file.write(json.dumps(each, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _sync(self.path)
        self.parts[entry["input"], entry["part"]] = entry


class Parts:
    """Writes parts, piece by piece; one that does not end is removed."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._piece: Piece | None = None  # the first of the open part

    def close(self) -> None:
        self._stack.close()

    def write(self, piece: Piece, arrays: dict[str, Any], kernels: Iterable[str]) -> dict[str, int]:
        """Returns how much the piece adds to the counts."""
        rows, first = len(piece.texts), self._piece
        if not first or (first.source, first.part) != (piece.source, piece.part):
            self._stack.close()  # a part whose file could not be read to the end
            self._open(piece, arrays)
        numbers = np.arange(piece.first, piece.first + rows)
        columns = [pa.array(numbers), *piece.kept.columns, *arrays.values()]
        self._writer.write_table(pa.table(columns, schema=self._schema))
        tokens = int(np.nansum(arrays["token_count"].to_numpy(zero_copy_only=False)))
        failed, cut = rows - arrays["error"].null_count, arrays["truncated"].true_count
        counts = {"rows": rows, "failed": failed, "truncated": cut, "tokens": tokens}
        self._counts.update(counts)
        if piece.last:
            self._finish(kernels)
        return counts

    def _open(self, piece: Piece, arrays: dict[str, pa.Array]) -> None:
        self._name = f"rows/{piece.source.name}-{piece.part:05d}.parquet"
        self._final = self._folder.path / self._name
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._aside = self._final.with_name(f".{self._final.name}.partial")
        kept = piece.kept.schema.remove_metadata()
        if both := {"row", *arrays} & {*kept.names}:
            raise ValueError(f"column {min(both)!r} cannot be kept: there is one of the results")
        own = [pa.field(name, array.type) for name, array in arrays.items()]
        self._schema = pa.schema([pa.field("row", pa.int64()), *kept, *own])
        plain = ["row", *kept.names, "token_count", "truncated", "error"]
        self._stack.callback(self._aside.unlink, missing_ok=True)
        self._sink = self._stack.enter_context(open(self._aside, "wb"))
        # Vectors do not shrink.
        options = {"compression": dict.fromkeys(plain, "zstd"), "use_dictionary": plain}
        options["write_statistics"] = plain
        self._writer = pq.ParquetWriter(self._sink, self._schema, **options)
        self._stack.enter_context(suppress(Exception))  # a full disk's, which was raised before
        self._stack.callback(self._writer.close)
        self._piece, self._counts = piece, Counter[str]()

    def _finish(self, kernels: Iterable[str]) -> None:
        assert self._piece
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        size = self._sink.tell()
        os.replace(self._aside, self._final)
        _sync(self._final.parent)
        self._stack.close()
        first, self._piece = self._piece, None
        entry = {"input": first.source.name, "part": first.part, "first_row": first.first}
        entry |= {"sha256": self._folder.hashes[first.source.name], "file": self._name}
        seconds = round(time.monotonic() - first.began, 3)
        entry |= {"bytes": size, **self._counts, "seconds": seconds, "kernels": sorted(kernels)}
        self._folder.enter(entry)


def taken(file: IO[Any]) -> bool:
    """Whether another process has the file's lock. If none has, this one does from now on."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _sync(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
