#!/usr/bin/env python3
"""Measures castor-load against truths that are known in advance; prints a Markdown table.

    tests/bench/load_tester/measure.py [--build build] [--only PART ...]

PART: stalls, rate, search, verdict. Ends with 1 if a bound was missed. Needs a Release build, two
cores and a quiet machine; `verdict` also .deps/minilm.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from castor_server import CastorServer  # noqa: E402

MISSED = []


def row(what, measured, bound="", passed=None):
    MISSED.extend([what] if passed is False else [])
    verdict = {None: "", True: "pass", False: "**miss**"}[passed]
    print(f"| {what} | {measured} | {bound} | {verdict} |", flush=True)


@contextlib.contextmanager
def scripted(options, *flags):
    """castor-scripted-server; yields what it says of itself."""
    log = options.out / "scripted.log"
    argv = [*permitted("nice", "-n", "-15"), options.build / "tests/bench/castor-scripted-server", *flags]
    with open(log, "w") as out:
        process = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            found = re.search(r'(?P<line>{"listening":"(?P<address>[^"]+)".*})', log.read_text())
            if found or process.poll() is not None:
                break
            time.sleep(0.1)
        if not found:
            raise SystemExit(f"{argv[0]} did not start: {log.read_text()}")
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def permitted(*prefix):
    """The prefix, if a program may be run with it: what else runs here must not move figures."""
    may = subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    return prefix if may else ()


def load(options, *argv, first=()):
    """A run of castor-load: its exit code, what it printed, and the saved run."""
    saved = options.out / "run.json"
    saved.unlink(missing_ok=True)
    ended = subprocess.run([*permitted(*first), str(options.build / "client/load/castor-load"), *map(str, argv),
                            "--quiet", "--json", str(saved)], capture_output=True, text=True,
                           check=False)
    run = json.loads(saved.read_text()) if saved.exists() else None
    return ended.returncode, ended.stdout + ended.stderr, run


def quantile(values, q):
    return sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]


def answer_time(arrival, script):
    """When script.cc lets the answer leave; nanoseconds from the script's begin."""
    due, every = arrival + script["service_ns"], script["stall_every_ns"]
    return max(due, due // every * every + script["stall_ns"]) if due >= every else due


def stalls(options):
    """1 s of stall every 10 s: percentiles from the intended time against the truth."""
    log = options.out / "requests.jsonl"
    with scripted(options, "--service-time", "200ms", "--stall", "1s", "--stall-every",
                  "10s") as server:
        script = json.loads(server["line"])
        for rate in (200, 500):
            for arrivals in ("constant", "poisson"):
                _, _, run = load(options, "run", "-s", server["address"], "--attend", 1, "--heads",
                                 1, "--rate", rate, "--arrivals", arrivals, "--duration", "30s",
                                 "--warm-up", "0s", "--log-requests", log,
                                 first=("chrt", "-f", "1"))
                lines = [json.loads(line) for line in log.read_text().splitlines()]
                begin = lines[0]["begin_unix_ns"] - script["begin_unix_ns"]
                true = [answer_time(begin + r["intended_ns"], script) - begin - r["intended_ns"]
                        for r in lines[1:]]
                total = run["summary"]["total"]
                names = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
                pairs = [(total["intended"][f"{name}_ms"], quantile(true, q) / 1e6)
                         for name, q in names.items()]
                worst = max(abs(a - b) / b for a, b in pairs)
                row(f"stalls, {arrivals}, {rate}/s: p50, p95, p99, p99.9 and the truth",
                    "; ".join(f"{a:.1f} and {b:.1f}" for a, b in pairs)
                    + f" ms: off by at most {worst:.2%}", "≤ 1 %", worst <= 0.01)
                row("the same: lines of the request log, requests planned",
                    f"{len(lines) - 1}, {total['planned']}", "equal",
                    len(lines) - 1 == total["planned"])


def rate(options):
    """Calls a second for each second of the client's processor time."""
    with scripted(options, "--discard") as server:
        best = 0
        for _ in range(5):
            _, _, run = load(options, "run", "-s", server["address"], "--attend", 1, "--heads", 4,
                             "--head-dim", 64, "--callers", 64, "--connections", 2, "--warm-up",
                             "1s", "--duration", "3s", first=("nice", "-n", "-15"))
            client, total = run["clients"][0], run["summary"]["total"]
            best = max(best, total["outcomes"]["ok"] / client["cpu_seconds"])
        row("rate: OK calls for each second of the client's processor, best of 5",
            f"{best:,.0f}; {total['ok_rate']:,.0f}/s in all", "≥ 60,000", best >= 60_000)


def search(options):
    """find-rate's answer for a queue: its objective is missed where work piles up."""
    with scripted(options, "--queue", "--service-time", "2ms") as server:
        code, text, _ = load(options, "find-rate", "-s", server["address"], "--attend", 1,
                             "--heads", 1, "--objective", "p99 <= 10ms", "--start-rate", 100,
                             "--probe", "10s", "--confirmation", "20s", "--tolerance", 0.05)
        found = re.search(r"the objectives were met at ([\d.]+)/s", text)
        met = float(found[1]) if found else 0
        # Of an M/D/1 queue with service 2 ms, p99 is 10 ms at 61 % of 500/s.
        row("search: highest rate of an M/D/1 queue of 2 ms at p99 <= 10 ms; exit code",
            f"{met:.0f}/s; {code}", "305/s ± 15 %", code == 0 and abs(met / 305 - 1) < 0.15)


def verdict(options):
    """README's example, client and server on the same two cores."""
    with CastorServer(options.build / "server/castor-server", "--model", ROOT / ".deps/minilm",
                      metrics=True, flags=()) as server:
        for turn in range(3):
            code, text, run = load(options, "run", "-s", server.address, "--encode", 16, "--rate", 50,
                                   "--duration", "30s", "--html", options.out / "run.html")
            total = run["summary"]["total"]
            lag = [f["text"] for f in run["verdict"]["validity"] if f["rule"] == "client-lag"][0]
            row(f"README's example, turn {turn + 1}: {text.splitlines()[0]}; p50, p99; lag",
                f"{total['intended']['p50_ms']:.1f}, {total['intended']['p99_ms']:.1f} ms; {lag}",
                "VALID", code == 0)


def main():
    parts = {"stalls": stalls, "rate": rate, "search": search, "verdict": verdict}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", action="append", choices=parts, default=[])
    options = parser.parse_args()
    print("| what | measured | bound | |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="castor-load.") as out:
        options.out = pathlib.Path(out)
        for name in options.only or parts:
            parts[name](options)
    print(f"\n{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; missed: "
          f"{', '.join(MISSED) or 'none'}")
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
