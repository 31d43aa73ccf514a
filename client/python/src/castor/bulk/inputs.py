"""Files of texts, read in parts: a Parquet file's row groups, or so many rows of other files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# fmt: off
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow",
    ".feather": "arrow", ".ipc": "arrow", ".jsonl": "JSON", ".ndjson": "JSON", ".csv": "CSV",
    ".tsv": "CSV", ".txt": "lines",
}
# fmt: on
_FAILURES = (
    pa.ArrowException,
    OSError,
    ValueError,
    EOFError,
    csv.Error,
)  # of a file that cannot be read
_WHY = "\0why"  # the column of those rows' errors that are no text
_STEP = 1024  # lines of a table


@dataclass(frozen=True)
class Source:
    """An input file. Its name is its path below the folder that was given."""

    path: Path
    name: str
    kind: str
    number: int


@dataclass
class Piece:
    """Consecutive rows of a part: its texts, and the columns that are kept."""

    source: Source
    part: int
    first: int  # row of the file
    last: bool  # whether the part ends with it
    texts: list[Any]
    pairs: list[Any] | None
    kept: pa.Table
    failed: dict[int, str]  # rows that are no text, and why
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Problem:
    """A file that cannot be read to its end, or a part of it."""

    source: Source
    part: int | None
    message: str


def find(paths: Sequence[str]) -> list[Source]:
    """The files of these paths; of folders, those in a known format."""
    found = list[tuple[Path, str]]()
    for given in map(Path, paths):
        inside = [(each, str(each.relative_to(given))) for each in sorted(given.rglob("*"))]
        files = [(each, name) for each, name in inside if each.is_file() and _kind(each)]
        if not files and (given.is_dir() or not _kind(given)):
            raise ValueError(f"{given}: no file whose name ends in {', '.join(_FORMATS)}")
        given.stat()
        found += files or [(given, given.name)]
    names = [name for _, name in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two inputs are called {min(twice)}: so would their rows be")
    return [Source(path, name, _kind(path), n) for n, (path, name) in enumerate(found)]


def _kind(path: Path) -> str:
    packed = path.suffix in (".gz", ".zst")
    kind = _FORMATS.get(Path(path.stem).suffix if packed else path.suffix, "")
    return "" if packed and kind in ("parquet", "arrow") else kind  # these compress by themselves


def digest(path: Path) -> str:
    """SHA-256 of the file."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


@dataclass(frozen=True)
class Reader:
    """Reads the wanted parts in pieces of `rows`, which divide `block_rows`."""

    text: str | None  # the column of texts; None: "text", or the only one
    pair: str | None  # of second texts
    keep: Sequence[str] | None  # None: "id", if there is one
    rows: int
    block_rows: int
    wanted: Callable[[Source, int], bool]

    def read(self, sources: Iterable[Source]) -> Iterator[Piece | Problem]:
        for source in sources:
            try:
                with ExitStack() as stack:
                    parquet = source.kind == "parquet"
                    yield from (self._row_groups if parquet else self._blocks)(source, stack)
            except _FAILURES as error:
                yield _problem(source, None, error)

    def _piece(self, source: Source, part: int, first: int, last: bool, table: Any) -> Piece:
        names = table.column_names
        keep = [name for name in names[1:] if name == "id"] if self.keep is None else self.keep
        kept = table.select(list(keep))
        pairs = None if self.pair is None else table[self.pair].to_pylist()
        why = table[_WHY].to_pylist() if _WHY in names else []
        failed = {row: each for row, each in enumerate(why) if each}
        return Piece(source, part, first, last, table[0].to_pylist(), pairs, kept, failed)

    def _row_groups(self, source: Source, stack: Any) -> Iterator[Piece | Problem]:
        opened = pq.ParquetFile(source.path, pre_buffer=False, buffer_size=1 << 20)
        file, first = stack.enter_context(opened), 0
        names = self._chosen(file.schema_arrow)
        empty = pa.schema([file.schema_arrow.field(name) for name in names]).empty_table()
        for part in range(file.num_row_groups):
            at, first = first, first + file.metadata.row_group(part).num_rows
            if not self.wanted(source, part):
                continue
            try:
                batches = file.iter_batches(self.rows, row_groups=[part], columns=names)
                tables = (pa.Table.from_batches([batch]).select(names) for batch in batches)
                for table, last in _cut(chain([empty], tables), self.rows):
                    yield self._piece(source, part, at, last, table)
                    at += len(table)
            except _FAILURES as error:
                yield _problem(source, part, error)

    def _blocks(self, source: Source, stack: Any) -> Iterator[Piece | Problem]:
        stream, first = self._arrow if source.kind == "arrow" else self._records, 0
        for table, last in _cut(stream(source, stack), self.rows):
            part, end = first // self.block_rows, first + len(table)
            if self.wanted(source, part):
                yield self._piece(source, part, first, last or not end % self.block_rows, table)
            first = end

    def _chosen(self, schema: pa.Schema) -> list[str]:
        """The columns to read: of texts, pairs, and those to keep."""
        names, text, others = list(schema.names), self.text, [self.pair, *(self.keep or ())]
        there = ", ".join(map(repr, names)) or "none"
        if text is None:
            known = [name for name in names if _is_text(schema, name) and name not in others]
            text = "text" if "text" in known else known[0] if len(known) == 1 else None
            if text is None:
                raise ValueError(f"name the column of texts: there are {there}")
        if self.keep is None and "id" in names:
            others.append("id")
        chosen = [text, *(name for name in others if name is not None)]
        for name in chosen:
            if names.count(name) != 1:
                raise ValueError(f"there is not one column {name!r}: there are {there}")
        for name in chosen[: 1 if self.pair is None else 2]:
            if not _is_text(schema, name):
                raise ValueError(f"column {name!r} is {schema.field(name).type}, not texts")
        return list(dict.fromkeys(chosen))

    # Files that are read from their start give tables of any number of rows, texts first. Those of
    # CSV and JSON have strings alone: a file's values may differ in type, and "007" is not 7.

    def _arrow(self, source: Source, stack: Any) -> Iterator[pa.Table]:
        file = stack.enter_context(pa.OSFile(str(source.path)))
        try:
            reader = stack.enter_context(pa.ipc.open_file(file))
            batches: Any = (reader.get_batch(n) for n in range(reader.num_record_batches))
        except pa.ArrowInvalid:  # the format without a footer
            file.seek(0)
            batches = reader = stack.enter_context(pa.ipc.open_stream(file))
        names = self._chosen(reader.schema)
        for batch in batches:
            yield pa.Table.from_batches([batch]).select(names)

    def _records(self, source: Source, stack: Any) -> Iterator[pa.Table]:
        rows, names = _objects(source, stack), list[str]()
        while some := list(islice(rows, _STEP)):
            names = names or self._chosen(_schema([row for row, _ in some]))
            made: dict[str, list[Any]] = {name: [] for name in (*names, _WHY)}
            for row, why in some:
                for name in names:
                    value = row.get(name)
                    if value is not None and not isinstance(value, str):
                        if name in (names[0], self.pair):
                            why = f"{name!r} is {type(value).__name__}, not a text"
                        value = json.dumps(value)
                    try:  # JSON can hold half of a surrogate pair
                        (value or "").encode()
                    except UnicodeEncodeError as error:
                        value, why = None, f"{name!r} is not Unicode: {error}"
                    made[name].append(value)
                made[_WHY].append(why)
            yield pa.table({name: pa.array(each, pa.string()) for name, each in made.items()})


def _objects(source: Source, stack: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Names and values of records, or why a line is none."""
    opened = pa.input_stream(str(source.path), compression="detect")
    file = io.BufferedReader(stack.enter_context(opened), 1 << 20)
    if source.kind == "CSV":
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        delimiter = "\t" if ".tsv" in source.path.suffixes else ","
        for row in csv.DictReader(text, delimiter=delimiter, strict=True):
            yield row, None
        return
    for line in file:
        line = line.rstrip(b"\r\n")
        try:
            found = {"text": line.decode()} if source.kind == "lines" else json.loads(line)
            is_object = isinstance(found, dict)
            yield (found, None) if is_object else ({}, "the line is not a JSON object")
        except (ValueError, RecursionError) as error:
            kind = "UTF-8" if source.kind == "lines" else "JSON"
            yield {"text": None}, f"the line is not {kind}: {error}"


def _cut(tables: Iterable[pa.Table], rows: int) -> Iterator[tuple[pa.Table, bool]]:
    """The same rows in tables of exactly so many, and which is the last."""
    kept, have = list[pa.Table](), 0
    for table in tables:
        while have + len(table) > rows:
            yield pa.concat_tables([*kept, table.slice(0, rows - have)]), False
            table, kept, have = table.slice(rows - have), [], 0
        kept.append(table)
        have += len(table)
    if kept:
        yield pa.concat_tables(kept), True


def _problem(source: Source, part: int | None, error: Exception) -> Problem:
    return Problem(source, part, f"{type(error).__name__}: {error}".strip())


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(schema.names.index(name)).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


def _schema(rows: list[dict[str, Any]]) -> pa.Schema:
    """The names that objects have; those with a string are of texts."""
    types = dict[str, pa.DataType]()
    for name, value in chain.from_iterable(row.items() for row in rows):
        if isinstance(value, str) or name not in types:
            types[name] = pa.string() if isinstance(value, str) or value is None else pa.int8()
    return pa.schema(types)
