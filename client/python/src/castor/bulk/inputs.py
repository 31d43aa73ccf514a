"""Files of texts, read in parts: a Parquet file's row groups, or so many rows of other files."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

# fmt: off
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow",
    ".feather": "arrow", ".ipc": "arrow", ".jsonl": "JSON", ".ndjson": "JSON", ".csv": "CSV",
    ".tsv": "CSV", ".txt": "lines",
}
# fmt: on
_FAILURES = (pa.ArrowException, OSError, ValueError, EOFError)  # of a file that cannot be read
_WHY = "\0why"  # the column of those rows' errors that are no text
_LINES = 4096  # of a table
_CSV_BYTES = 8 << 20  # of a table


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
    as_text: bool  # whether whole numbers of CSV and JSON are kept as text
    rows: int
    block_rows: int
    check: Callable[[Source], None]  # raises ValueError for a file that is not to be read
    wanted: Callable[[Source, int], bool]
    types: dict[str, pa.DataType] = field(default_factory=dict)  # of their columns

    def read(self, sources: Iterable[Source]) -> Iterator[Piece | str]:
        """Pieces, and what is wrong with files that cannot be read to their end."""
        for source in sources:
            try:
                self.check(source)
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

    def _row_groups(self, source: Source, stack: Any) -> Iterator[Piece | str]:
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

    def _blocks(self, source: Source, stack: Any) -> Iterator[Piece | str]:
        tables = {"arrow": self._arrow, "CSV": self._csv}.get(source.kind, self._lines)
        first = 0
        for table, last in _cut(tables(source, stack), self.rows):
            part, end = first // self.block_rows, first + len(table)
            if self.wanted(source, part):
                yield self._piece(source, part, first, last or not end % self.block_rows, table)
            first = end

    def _chosen(self, schema: pa.Schema) -> list[str]:
        """The columns to read: of texts, pairs, and those to keep."""
        names, there = list(schema.names), ", ".join(map(repr, schema.names)) or "none"
        others = [self.pair] if self.pair else []
        others += (["id"] if "id" in names else []) if self.keep is None else self.keep
        known = [each.name for each in schema if _is_text(each.type) and each.name not in others]
        text = self.text or ("text" if "text" in known else known[0] if len(known) == 1 else None)
        if text is None:
            raise ValueError(f"name the column of texts: there are {there}")
        for name in (text, *others):
            if names.count(name) != 1:
                raise ValueError(f"there is not one column {name!r}: there are {there}")
        for name in (text, self.pair or text):
            if not _is_text(kind := schema.field(name).type):
                raise ValueError(f"column {name!r} is {kind}, not texts")
        return list(dict.fromkeys([text, *others]))

    def _arrow(self, source: Source, stack: Any) -> Iterator[pa.Table]:
        file = stack.enter_context(pa.OSFile(str(source.path)))
        stream = file.read(6) != b"ARROW1"  # the format without a footer
        file.seek(0)
        reader = stack.enter_context((pa.ipc.open_stream if stream else pa.ipc.open_file)(file))
        names = self._chosen(reader.schema)
        for batch in reader if stream else map(reader.get_batch, range(reader.num_record_batches)):
            yield pa.Table.from_batches([batch]).select(names)

    def _csv(self, source: Source, stack: Any) -> Iterator[pa.Table]:
        delimiter = "\t" if ".tsv" in source.path.suffixes else ","
        opened = partial(
            pa.csv.open_csv,
            str(source.path),
            read_options=pa.csv.ReadOptions(block_size=_CSV_BYTES, use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        )
        with opened() as file:
            names = self._chosen(_strings(file.schema.names))
        types = dict.fromkeys(names, pa.string())  # at first: pyarrow would read "007" as 7
        options = pa.csv.ConvertOptions(include_columns=names, column_types=types)
        for batch in stack.enter_context(opened(convert_options=options)):
            if batch.num_rows:
                texts = (names[0], self.pair)
                yield self._alike(
                    {n: each if n in texts else _whole(each) for n, each in zip(names, batch)}
                )

    def _lines(self, source: Source, stack: Any) -> Iterator[pa.Table]:
        """JSON's objects, or plain lines. A line that is none has its error in a column."""
        opened = pa.input_stream(str(source.path), compression="detect")
        file, names = io.BufferedReader(stack.enter_context(opened), 1 << 20), list[str]()
        while lines := [*islice(file, _LINES)]:
            records = [_record(source.kind, line.rstrip(b"\r\n")) for line in lines]
            rows, why = [row for row, _ in records], [error for _, error in records]
            names, columns = names or self._chosen(_strings(dict.fromkeys(chain(*rows)))), {}
            for name in names:
                is_text = name in (names[0], self.pair)
                columns[name] = _column(name, [row.get(name) for row in rows], is_text, why)
            yield self._alike({**columns, _WHY: pa.array(why, pa.string())})

    def _alike(self, columns: dict[str, pa.Array]) -> pa.Table:
        """A table of CSV or JSON, whose columns are of whole numbers if they began so, or texts."""
        for name, column in columns.items():
            kind = self.types.setdefault(name, pa.string() if self.as_text else column.type)
            if kind == pa.int64() != column.type and column.null_count < len(column):
                told = f"column {name!r} has a text, and whole numbers before it"
                raise ValueError(f"{told}: use --keep-as-text, and another folder")
            columns[name] = column.cast(kind)
        return pa.table(columns)


def _record(kind: str, line: bytes) -> tuple[dict[str, Any], str | None]:
    """Names and values, or why the line has none."""
    try:
        found = {"text": line.decode()} if kind == "lines" else json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"text": None}, f"the line is not {'UTF-8' if kind == 'lines' else 'JSON'}: {error}"
    return (found, None) if isinstance(found, dict) else ({}, "the line is not a JSON object")


def _column(name: str, values: list[Any], is_text: bool, why: list[str | None]) -> pa.Array:
    """JSON's values as whole numbers, if all are, or else as texts. Adds what is wrong to `why`."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int} and not is_text:
        with suppress(OverflowError):
            return pa.array(values, pa.int64())
    for row, value in enumerate(values if kinds - {str} else ()):
        if value is not None and not isinstance(value, str):
            values[row] = json.dumps(value)
            if is_text:
                why[row] = f"{name!r} is {type(value).__name__}, not a text"
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # JSON can hold half of a surrogate pair
        for row, value in enumerate(values):
            if value and value != (whole := value.encode(errors="replace").decode()):
                values[row], why[row] = whole, f"{name!r} is not Unicode"
        return pa.array(values, pa.string())


def _whole(column: pa.Array) -> pa.Array:
    """Texts as whole numbers, if that loses nothing, as it would of "007"."""
    with suppress(pa.ArrowInvalid):
        numbers = column.cast(pa.int64())
        if numbers.cast(pa.string()).equals(column):
            return numbers
    return column


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


def _problem(source: Source, part: int | None, error: Exception) -> str:
    where = source.path if part is None else f"{source.path}, row group {part}"
    return f"{where}: {type(error).__name__}: {error}"


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


def _strings(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])
