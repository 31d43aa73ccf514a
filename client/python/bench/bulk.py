#!/usr/bin/env python3
"""Measures castor-embed: its rate against castor-load and sentence-transformers, memory, kills.

bulk.py rate SERVER CASTOR-LOAD VOCABULARY [ROUNDS [TEXTS]]    int8 or float32, as the server is
bulk.py peer FLOAT32-SERVER INT8-SERVER VOCABULARY ST-PYTHON MODEL [ROUNDS]
bulk.py windows SERVER ITS-PID VOCABULARY [ROUNDS]
bulk.py memory SERVER
bulk.py kills MODEL [KILLS]    CASTOR_SERVER_PROGRAM names the server
bulk.py cpu SERVER VOCABULARY [ROUNDS [TEXTS]]
Runs alternate, and medians are compared: other work on the machine hits both sides.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SLICE = 10000
EMBED = [sys.executable, "-c", "import castor.bulk.command as c; c.program()"]


def texts(vocabulary, count, seed):
    """Of 3 to 220 words; the median is 15, the mean 20."""
    words = [
        word for word in Path(vocabulary).read_text().split("\n")[2000:20000] if word.isalpha()
    ]
    draw = random.Random(seed)
    lengths = (int(min(220, max(3, draw.lognormvariate(2.7, 0.8)))) for _ in range(count))
    return [" ".join(draw.choices(words, k=n)) for n in lengths]


def write(path, made, rows=1000):
    ids = pa.array(range(len(made)))
    pq.write_table(pa.table({"id": ids, "text": made}), path, row_group_size=rows)


def embed(path, folder, *flags):
    """In this process, so that imports are not measured. Texts and tokens a second."""
    from castor.bulk import command

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = command.main([str(path), "--to", str(folder), "--quiet", *flags])
    assert code == 0, out.getvalue()
    found = re.search(r"([\d,.]+) texts/s, ([\d,]+) tokens/s; (.*)", out.getvalue())
    return [float(each.replace(",", "")) for each in found.groups()[:2]] + [found[3]]


def table(name, rows):
    ratios = [round(a / b, 3) for a, b in rows]
    a, b = (statistics.median(each) for each in zip(*rows))
    print(
        f"{name}: {a:,.0f} against {b:,.0f}, {a / b:.3f}; ratios of rounds {ratios}, median "
        f"{statistics.median(ratios):.3f}",
        flush=True,
    )


def peak(load, server, path, count):
    """castor-load's tokens a second with texts of this file, in the shape that gave it most: 128
    texts by 8 callers."""
    run = [load, "run", "--server", server, "--texts", path, "--sequences", 128, "--no-metrics"]
    run += ["--arrivals", "closed", "--callers", 8, "--payloads", min(count // 128, 256), "--quiet"]
    run += ["--duration", f"{max(12, count // 1700)}s", "--warm-up", "3s"]
    told = subprocess.run([*map(str, run)], capture_output=True, text=True).stdout
    row = re.search(r"^encode +\d+.*$", told, re.MULTILINE)[0].split()
    return float(row[10].replace(",", ""))


def rate(server, load, vocabulary, rounds="5", count=SLICE):
    """New texts by castor-embed, between two runs of castor-load, which together take as long."""
    count, rows = int(count), []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for number in range(int(rounds)):
            made = texts(vocabulary, count, number)
            write(scratch / "in.parquet", made, 10_000 if count > SLICE else 1000)
            (scratch / "in.txt").write_text("\n".join(made))
            peaks = [peak(load, server, scratch / "in.txt", count)]
            texts_s, tokens_s, waited = embed(
                scratch / "in.parquet", scratch / str(number), "--servers", server
            )
            peaks.append(peak(load, server, scratch / "in.txt", count))
            rows.append((tokens_s, statistics.mean(peaks)))
            print(
                f"{number} {texts_s:.0f} texts/s, {tokens_s:,.0f} tokens/s, {waited}; castor-load "
                f"{peaks[0]:.0f}, {peaks[1]:.0f}; {tokens_s / rows[-1][1]:.3f}",
                flush=True,
            )
        table("castor-embed against castor-load", rows)


def peer(floats, int8, vocabulary, python, model, rounds="7"):
    """The same slice by sentence-transformers, and by castor-embed with both servers."""
    program = """
import sys, time
import pyarrow.parquet as pq, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(2)
model = SentenceTransformer(sys.argv[1], device="cpu")
model.encode(["warm"] * 64)
print("ready", flush=True)
for path in sys.stdin:
    begin = time.perf_counter()
    texts = pq.read_table(path.strip())["text"].to_pylist()
    model.encode(texts, batch_size=32)
    print(len(texts) / (time.perf_counter() - begin), flush=True)
"""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        peer = subprocess.Popen(
            [python, "-c", program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        peer.stdout.readline()
        rows = []
        for number in range(int(rounds)):
            write(scratch / "in.parquet", texts(vocabulary, SLICE // 5, 100 + number))
            peer.stdin.write(f"{scratch}/in.parquet\n")
            peer.stdin.flush()
            theirs = float(peer.stdout.readline())
            ours = [
                embed(scratch / "in.parquet", scratch / f"{number}{name}", "--servers", name)[0]
                for name in (floats, int8)
            ]
            rows.append((*ours, theirs))
            print(number, [round(each) for each in rows[-1]], flush=True)
        peer.stdin.close()
        peer.wait()
        table("texts/s, float32 against sentence-transformers", [(a, c) for a, _, c in rows])
        table("texts/s, int8 against sentence-transformers", [(b, c) for _, b, c in rows])


def windows(server, pid, vocabulary, rounds="8"):
    """The same texts sorted by length, and in arrival order: by the clock, and by the seconds of
    processors that the server takes, which other work disturbs less."""

    def spent():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with tempfile.TemporaryDirectory() as scratch:
        scratch, clock, processors = Path(scratch), [], []
        for number in range(int(rounds)):
            made, found = texts(vocabulary, SLICE // 5, 200 + number), {}
            for order in ("sorted", "arrival") if number % 2 else ("arrival", "sorted"):
                path = scratch / f"{order}{number}.parquet"
                write(path, sorted(made, key=len) if order == "sorted" else made, SLICE)
                begin = spent()
                texts_s, tokens_s, _ = embed(
                    path, scratch / f"{order}{number}", "--servers", server
                )
                found[order] = tokens_s, tokens_s / texts_s * len(made) / (spent() - begin)
            clock.append((found["sorted"][0], found["arrival"][0]))
            processors.append((found["sorted"][1], found["arrival"][1]))
        table("tokens a second, sorted against arrival order", clock)
        table("tokens a second of processors, sorted against arrival order", processors)


def memory(server):
    """The most memory of castor-embed, as the kernel counts it for the program itself: what
    getrusage() says includes the one that started it."""
    own = "from castor.bulk.command import main; import sys; main(sys.argv[1:])"
    program = f"{own}; print(*(each for each in open('/proc/self/status') if 'VmHWM' in each))"
    with tempfile.TemporaryDirectory() as scratch:
        scratch, peaks = Path(scratch), {}
        for count in (100_000, 1_000_000):
            path, folder = scratch / f"{count}.parquet", scratch / str(count)
            write(path, [f"item {n} of many" for n in range(count)], 1 << 20)  # one row group
            run = [sys.executable, "-c", program, path, "--to", folder, "--servers", server]
            told = subprocess.run([*run, "--quiet"], capture_output=True, text=True, check=True)
            peaks[count] = int(re.search(r"VmHWM:\s+(\d+)", told.stdout)[1]) / 1024
            rows = pq.read_metadata(next((folder / "rows").glob("*"))).num_rows
            print(f"{peaks[count]:.1f} MiB, {rows:,} written; {told.stdout.strip()}", flush=True)
        print(f"ratio {peaks[1_000_000] / peaks[100_000]:.3f}")


def cpu(server, vocabulary, rounds="5", count="20000"):
    """Time of processors of castor-embed's own process: of 128 texts, which is its start, and
    microseconds for each further one. Processes are new, since the first run's memory costs most. A
    static model's server shows the least; beside MiniLM caches are cold."""

    def spent(path, folder):
        run = subprocess.Popen([*EMBED, path, "--to", folder, "--servers", server, "--quiet"])
        _, status, used = os.wait4(run.pid, 0)
        assert status == 0
        return used.ru_utime + used.ru_stime

    count, rows = int(count), []
    with tempfile.TemporaryDirectory() as scratch:
        scratch, made = Path(scratch), texts(vocabulary, count, 300)
        write(scratch / "few.parquet", made[:128])
        write(scratch / "many.parquet", made, 10_000)
        for number in range(int(rounds)):
            few, many = (
                spent(scratch / f"{name}.parquet", scratch / f"{name}{number}")
                for name in ("few", "many")
            )
            rows.append(((many - few) / (count - 128) * 1e6, few))
    start, each = (statistics.median(values) for values in zip(*[row[::-1] for row in rows]))
    print(f"start {start:.2f} s; us a text {[round(row[0], 1) for row in rows]}, median {each:.1f}")


def digests(folder):
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted((folder / "rows").iterdir())
        if each.suffix == ".parquet"
    }


def kills(model, count="20"):
    """Rounds with a kill -9 each, of the worker or its own server by turns, at random moments;
    then a run to the end, whose files must have the bytes of those that nobody disturbed."""
    draw, count, counted = random.Random(5), int(count), {"worker": 0, "server": 0, "late": 0}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        made = [f"item {n} " + "of many words " * (n % 40) for n in range(30_000)]
        write(scratch / "in.parquet", made, 2000)
        command = [
            *EMBED,
            scratch / "in.parquet",
            "--model",
            model,
            "--server-flag=--device=cpu",
            "--server-flag=--cost-model-budget=0s",
            "--quiet",
            "--to",
        ]
        begin = time.monotonic()
        subprocess.run([*command, scratch / "whole"], check=True)
        took = time.monotonic() - begin
        want = digests(scratch / "whole")
        number = 0
        while counted["worker"] + counted["server"] < count:
            who, folder = ("worker", "server")[number % 2], scratch / f"round{number}"
            number += 1
            run = subprocess.Popen(
                [*command, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            wait = draw.uniform(0.3, 1.0) * took
            time.sleep(wait)
            server = subprocess.run(
                ["pgrep", "-P", str(run.pid), "castor-server"], capture_output=True, text=True
            ).stdout.split()
            victim = run.pid if who == "worker" else int(server[0]) if server else 0
            if run.poll() is not None or not victim:
                counted["late"] += 1
            else:
                os.kill(victim, signal.SIGKILL)
                counted[who] += 1
            told = run.communicate()
            if who == "server":
                assert run.returncode == 0, told
            there = len(digests(folder)) if (folder / "rows").exists() else 0
            code = subprocess.run([*command, folder], capture_output=True, text=True)
            assert code.returncode == 0, code
            assert digests(folder) == want, folder
            entries = [json.loads(line) for line in open(folder / "manifest.jsonl")][1:]
            assert sorted(each["part"] for each in entries) == list(range(len(want)))
            ids = pq.read_table(folder / "rows", columns=["id"])["id"].to_pylist()
            assert sorted(ids) == list(range(len(made)))
            print(
                f"{who} killed after {wait:.1f} of {took:.1f} s; {there} of {len(want)} files "
                "were there; ids and bytes are the same",
                flush=True,
            )
    print(counted)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in (
        "rate",
        "peer",
        "windows",
        "memory",
        "kills",
        "cpu",
    ):
        sys.exit(__doc__)
    globals()[sys.argv[1]](*sys.argv[2:])
