"""castor-embed: formats, outputs, errors of rows and files, resuming, kills, full disks."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, MINILM, PROGRAM, Server

import castor

pa = pytest.importorskip("pyarrow")
import pyarrow.feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from castor.bulk import command  # noqa: E402

TEXTS = [f"beaver {n} " + "builds a dam " * (n % 7) for n in range(60)]
TABLE = pa.table({"id": [f"00{n % 9}" for n in range(60)], "text": TEXTS})
COMMAND = [sys.executable, "-c", "from castor.bulk.command import program; program()"]


@pytest.fixture
def embed(server: Server, tmp_path: Path, capsys: Any) -> Callable[..., Any]:
    def run(*arguments: Any, code: int = 0, model: str = "minilm", to: str = "out") -> Any:
        """Runs castor-embed; returns its table, or what it says where it fails."""
        given = [*map(str, arguments), "--to", str(tmp_path / to), "--quiet"]
        if "--servers" not in given:
            given += ["--servers", server.target]
        assert command.main([*given, "--model", model]) == code
        told = capsys.readouterr().err
        return told if code else pq.read_table(tmp_path / to / "rows")

    return run


def rows(table: Any, name: str = "embedding") -> Any:
    return np.stack(table[name].to_numpy())


def write(folder: Path, name: str) -> Path:
    path, lines = folder / name, "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist())
    if name.endswith(".parquet"):
        pq.write_table(TABLE, path, row_group_size=25)
    elif name.endswith(".feather"):
        pyarrow.feather.write_feather(TABLE, path)
    elif name.endswith(".arrows"):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as stream:
            stream.write_table(TABLE)
    elif name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif name.endswith(".zst"):
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(lines.encode())
    elif name.endswith(".txt"):
        path.write_text("\r\n".join(TEXTS))
    else:
        path.write_text(
            "id,text\n" + "".join(f'{r["id"]},"{r["text"]}"\n' for r in TABLE.to_pylist())
        )
    return path


@pytest.mark.parametrize(
    "name",
    ["a.parquet", "a.feather", "a.arrows", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.txt"],
)
def test_formats(embed: Any, client: castor.Client, tmp_path: Path, name: str) -> None:
    table = embed(write(tmp_path, name)).sort_by("row")
    assert (rows(table) == client.encode(TEXTS, model="minilm")).all()
    assert table["row"].to_pylist() == [*range(60)]
    assert table["error"].null_count == 60
    assert name == "a.txt" or table["id"].to_pylist() == TABLE["id"].to_pylist()


def test_outputs(embed: Any, client: castor.Client, tmp_path: Path) -> None:
    source = write(tmp_path, "a.parquet")
    for precision, kind in ("float16", pa.float16()), ("ubinary", pa.uint8()):
        table = embed(source, "--precision", precision, to=precision)
        want = client.encode(TEXTS, model="minilm", precision=precision)
        assert (rows(table.sort_by("row")) == want).all()
        assert table.schema.field("embedding").type == pa.list_(kind, want.shape[1])
    table = embed(source, "--precision", "int8", to="int8")
    ranges = np.load(tmp_path / "int8/ranges.npy")
    want = client.encode(TEXTS, model="minilm", precision="int8", ranges=ranges)
    assert (rows(table.sort_by("row")) == want).all()
    assert len(np.unique(want)) > 200
    table = embed(source, "--output", "token_embeddings", to="tokens").sort_by("row")
    want = client.encode_tokens(TEXTS, model="minilm")
    for found, each in zip(table["token_embeddings"].to_pylist(), want):
        assert (np.array(found, np.float32) == each).all()
    table = embed(source, "--output", "sparse", to="sparse", model="splade").sort_by("row")
    sparse = client.encode_sparse(TEXTS, model="splade", truncate=True)
    assert table["indices"].combine_chunks().flatten().to_pylist() == sparse.indices.tolist()
    assert table["values"].combine_chunks().flatten().to_pylist() == sparse.values.tolist()
    assert np.diff(sparse.indptr).tolist() == [len(row) for row in table["values"].to_pylist()]
    packed = pa.table({"text": pa.array(["a", None, "b"]).dictionary_encode()})
    pq.write_table(packed, tmp_path / "packed.parquet")
    told = embed(tmp_path / "packed.parquet", to="packed")["error"].to_pylist()
    assert told == [None, "there is no text", None]
    pairs = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"q": TEXTS, "d": TEXTS[::-1]}), pairs)
    flags = "--text", "q", "--pair", "d", "--output", "scores"
    scores = rows(embed(pairs, *flags, to="scores", model="cross"), "scores")
    want = client.predict([*zip(TEXTS, TEXTS[::-1])], model="cross", truncate=True)
    assert (scores[:, 0] == want).all()


def test_whole_numbers(embed: Any, tmp_path: Path) -> None:
    """Ids of JSON and CSV stay whole numbers where that loses nothing, and else are texts."""

    def write(name: str, values: list[Any]) -> Path:
        if name.endswith(".csv"):
            lines = ["id,text", *(f"{each},a" for each in values)]
        else:
            lines = [f'{{"id": {each}, "text": "a"}}' for each in values]
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    def ids(name: str, values: list[Any], *flags: str) -> Any:
        count = len([*tmp_path.glob("ids*")])
        return embed(write(name, values), *flags, to=f"ids{count}").sort_by("row")["id"].to_pylist()

    large = [-(2**63), 7, 2**53 + 1, 2**63 - 1]
    assert ids("a.csv", large) == ids("a.jsonl", large) == large
    for texts in ["1", "007"], ["0", "-0"], ["1", ""], ["1", str(2**63)], ["0x10", "+1"]:
        assert ids("a.csv", texts) == texts
    assert ids("a.jsonl", [1, "null"]) == [1, None]
    assert ids("a.jsonl", ['"1"', '"007"']) == ["1", "007"]
    for values in [1, 2**63], [1, 2.5, "true"], [10**30, "[1, 2]"]:
        assert ids("a.jsonl", values) == [*map(str, values)]
    assert ids("a.csv", [1, 2], "--keep-as-text") == ["1", "2"]
    assert ids("a.jsonl", [1, 2], "--keep-as-text") == ["1", "2"]
    told = embed(write("later.jsonl", [*range(5000), '"x"']), to="later", code=1)
    assert "later.jsonl: ValueError: column 'id'" in told and "--keep-as-text" in told
    told = embed(write("1.csv", [1, 2]), write("2.csv", ["007"]), to="files", code=1)
    assert "2.csv: ValueError: column 'id'" in told and "1.csv" not in told
    both = [write("1.csv", ["007"]), write("2.jsonl", [1])]
    assert sorted(embed(*both, to="both")["id"].to_pylist()) == ["007", "1"]


def test_rows_that_fail(embed: Any, tmp_path: Path) -> None:
    lines = ['{"text": "a"}', "{", '{"text": 5}', '{"text": "\\ud800"}', '{"id": 1}', "[]"]
    lines += [json.dumps({"text": "dam " * 400}), '{"text": ""}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    table = embed(tmp_path / "a.jsonl", "--no-truncate")
    told = table["error"].to_pylist()
    assert [each is None for each in told] == [n in (0, 7) for n in range(8)]
    for error, word in zip(told[1:7], ("JSON", "int", "Unicode", "no text", "object", "256")):
        assert word in error
    assert np.isnan(rows(table)[1:7]).all() and np.isfinite(rows(table)[[0, 7]]).all()
    assert table["token_count"].null_count == 6
    table = embed(tmp_path / "a.jsonl", to="cut")
    assert table["truncated"].to_pylist()[6:] == [True, False]


def test_files_that_fail(embed: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(TABLE, plain, row_group_size=25, compression="none", use_dictionary=False)
    column, whole = pq.read_metadata(plain).row_group(1).column(1), plain.read_bytes()
    at = column.data_page_offset
    (tmp_path / "torn.parquet").write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
    (tmp_path / "short.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(TABLE.rename_columns(["id", "body"]), tmp_path / "named.parquet")
    for name in ("empty.parquet", "empty.jsonl"):
        (tmp_path / name).touch()
    told = embed(tmp_path, "--text", "text", code=1)
    assert "torn.parquet, row group 1: " in told and "short.parquet: " in told
    assert "named.parquet: ValueError: there is not one column 'text'" in told
    assert "empty.parquet: " in told and "empty.jsonl" not in told and "plain" not in told
    names = sorted(path.name for path in (tmp_path / "out/rows").iterdir())
    assert names == [f"plain.parquet-0000{n}.parquet" for n in range(3)] + [
        "torn.parquet-00000.parquet",
        "torn.parquet-00002.parquet",
    ]
    assert "name the column" in embed(write(tmp_path, "t.txt"), "--pair", "text", code=1, to="p")
    assert "no file" in embed(tmp_path / "a.xls", code=1)
    kept = tmp_path / "kept.parquet"
    pq.write_table(TABLE.rename_columns(["error", "text"]), kept)
    assert "'error' cannot be kept" in embed(kept, "--keep", "error", code=1, to="kept")


def test_resuming(embed: Any, tmp_path: Path) -> None:
    source, out = write(tmp_path, "a.parquet"), tmp_path / "out"
    embed(source)
    files = sorted((out / "rows").iterdir())
    bytes_, times = (
        [path.read_bytes() for path in files],
        [path.stat().st_mtime_ns for path in files],
    )
    files[1].unlink()
    with open(out / "manifest.jsonl", "a") as manifest:
        manifest.write('{"input": "a.par')  # as a kill leaves it
    embed(source)
    assert [path.read_bytes() for path in files] == bytes_
    again = [path.stat().st_mtime_ns for path in files]
    assert [a == b for a, b in zip(times, again)] == [True, False, True]
    entries = [json.loads(line) for line in open(out / "manifest.jsonl")]
    assert [each["part"] for each in entries[1:]] == [0, 1, 2, 1]
    assert "precision 'float32', not 'float16'" in embed(source, "--precision", "float16", code=1)
    assert "another vector" in embed(source, code=1, model="prompted")
    pq.write_table(TABLE.slice(0, 50), source)
    assert "has changed" in embed(source, code=1)


def test_shares(embed: Any, tmp_path: Path, monkeypatch: Any) -> None:
    source = write(tmp_path, "a.parquet")
    embed(source, "--shard", "1/2")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    monkeypatch.setenv("JOB_COMPLETIONS", "2")
    assert sorted(embed(source)["row"].to_pylist()) == [*range(60)]
    names = sorted(path.name for path in (tmp_path / "out").glob("manifest*"))
    assert names == ["manifest-0-of-2.jsonl", "manifest-1-of-2.jsonl"]


def test_one_process_at_a_time(embed: Any, tmp_path: Path) -> None:
    source = write(tmp_path, "a.parquet")
    with closing(command.outputs.Folder(str(tmp_path / "out"), 1, 2)):
        assert "another castor-embed" in embed(source, "--shard", "1/2", code=1)
        assert "another castor-embed" in embed(source, code=1)
        embed(source, "--shard", "0/2")


TINY = GOLDEN / "tiny_bert"
MANY = 12_000  # texts, for processes that are to be killed before they end


@pytest.fixture(scope="module")
def tiny() -> Iterator[Server]:
    with Server(f"--model=tiny={TINY}") as server:
        yield server


# Stops itself once its third file has its name: a fast server leaves no time to be watched.
STOPPING = """
import os, signal
replace, files = os.replace, []
def stop(*paths):
    replace(*paths)
    files.append(paths)
    if len(files) == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
os.replace = stop
"""


def start(tmp_path: Path, target: str, *, stops: bool = False, **more: Any) -> Any:
    table = pa.table({"text": TEXTS * (MANY // 60)})
    if not (tmp_path / "a.parquet").exists():
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    given = ["--to", tmp_path / "out", "--servers", target, "--in-flight", "1", "--quiet"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = [*COMMAND[:-1], (STOPPING if stops else "") + COMMAND[-1]]
    process = subprocess.Popen([*program, tmp_path / "a.parquet", *given], **pipes, **more)
    if stops:
        ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert ended and ended.si_code == os.CLD_STOPPED, process.communicate()
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_ends(tiny: Server, tmp_path: Path, number: int) -> None:
    process = start(tmp_path, tiny.target, stops=True)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    told = process.communicate()[1]
    assert process.returncode == (-number if number == signal.SIGKILL else 130), told
    if number != signal.SIGKILL:
        assert "interrupted" in told and "Traceback" not in told
        assert not [*tmp_path.glob("out/rows/.*")]
    there = {path: path.stat().st_ino for path in tmp_path.glob("out/rows/a*")}
    assert 2 < len(there) < 24
    process = start(tmp_path, tiny.target)
    assert process.wait() == 0, process.communicate()
    kept = [path for path, inode in there.items() if path.stat().st_ino == inode]
    assert len(kept) >= len(there) - 1  # one may have lacked its entry
    assert sorted(pq.read_table(tmp_path / "out/rows")["row"].to_pylist()) == [*range(MANY)]


def test_a_server_that_ends_and_returns(tmp_path: Path) -> None:
    first = Server(f"--model=tiny={TINY}")
    process = start(tmp_path, first.target, stops=True)
    first.stop(signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    with Server(f"--model=tiny={TINY}", port=first.port):
        assert process.wait(120) == 0, process.communicate()
    table = pq.read_table(tmp_path / "out/rows")
    assert sorted(table["row"].to_pylist()) == [*range(MANY)] and table["error"].null_count == MANY


def test_another_model_comes_back(tmp_path: Path) -> None:
    first = Server(f"--model=tiny={TINY}")
    process = start(tmp_path, first.target, stops=True)
    first.stop(signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    with Server(f"--model=tiny={MINILM}", port=first.port):
        told = process.communicate(timeout=120)[1]
    assert process.returncode == 1 and "has the hidden_size 384" in told, told


def test_a_full_disk(tiny: Server, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    process = start(tmp_path, tiny.target, preexec_fn=limit)
    told = process.communicate()[1]
    assert process.returncode == 1 and "File too large" in told and "Traceback" not in told, told
    assert not [*tmp_path.glob("out/rows/*"), *tmp_path.glob("out/rows/.*")]
    assert start(tmp_path, tiny.target).wait() == 0


def test_a_server_of_its_own(embed: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """And one that is killed is started again."""
    monkeypatch.setenv("CASTOR_SERVER_PROGRAM", PROGRAM)
    pq.write_table(
        pa.table({"text": TEXTS * (MANY // 60)}), tmp_path / "a.parquet", row_group_size=500
    )
    flags = ["--server-flag=--device=cpu", "--server-flag=--cost-model-budget=0s", "--quiet"]
    given = [str(tmp_path / "a.parquet"), "--to", str(tmp_path / "out"), *flags]
    killed = []
    replace = os.replace

    def kill(*paths: Any) -> None:
        """When the first file has its name."""
        replace(*paths)
        if killed:
            return
        found = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "castor-server"], capture_output=True, text=True
        )
        for pid in found.stdout.split():
            if f"--model=model={TINY}" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(int(pid), signal.SIGKILL)
                killed.append(pid)

    monkeypatch.setattr(os, "replace", kill)
    assert command.main([*given, "--model", str(TINY)]) == 0
    assert len(killed) == 1
    header = json.loads(next(open(tmp_path / "out/manifest.jsonl")))
    assert len(header["model"]["sha256"]) == 64
    assert sorted(pq.read_table(tmp_path / "out/rows")["row"].to_pylist()) == [*range(MANY)]
