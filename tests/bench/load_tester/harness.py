"""Servers, programs and the log's table, for measure.py."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.request


@dataclasses.dataclass
class Settings:
    build: pathlib.Path   # a Release build
    peers: pathlib.Path   # the folder of peers.sh
    out: pathlib.Path     # scratch
    root: pathlib.Path    # the checkout
    quick: bool = False   # shorter runs: to see that all works, not to be logged
    client_cpu: int = 0   # where one core is all that a client gets ...
    server_cpu: int = 1   # ... and what the server has meanwhile

    @property
    def castor_load(self):
        return self.build / "client/load/castor-load"

    def seconds(self, full):
        """The length of a measurement that takes `full` seconds unless it is quick."""
        return max(2, full // 6) if self.quick else full


class Report:
    """Rows of a Markdown table; a row with a bound has passed or missed it."""

    def __init__(self):
        self.rows, self.missed = [], 0

    def add(self, what, measured, bound="", passed=None):
        self.missed += passed is False
        verdict = {None: "", True: "pass", False: "**miss**"}[passed]
        self.rows.append((what, measured, bound, verdict))
        print(f"| {what} | {measured} | {bound} | {verdict} |", flush=True)


@dataclasses.dataclass
class Ended:
    code: int
    stdout: str
    stderr: str
    cpu_seconds: float  # user and system, of the process and its children


def command(argv, cpu=None):
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    return [*pin, *map(str, argv)]


def finish(argv, cpu=None, timeout=600, meanwhile=None, env=None):
    """Runs a program to its end, on one core if `cpu` says so; `meanwhile(process)` beside it."""
    before = os.times()
    process = subprocess.Popen(command(argv, cpu), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=env and {**os.environ, **env})
    try:
        if meanwhile:
            meanwhile(process)
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    after = os.times()
    cpu_seconds = (after.children_user + after.children_system
                   - before.children_user - before.children_system)
    return Ended(process.returncode, stdout, stderr, cpu_seconds)


def cpu_seconds(pid):
    """User and system time of a running process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Scripted:
    """A running castor-scripted-server."""

    def __init__(self, process):
        self.process = process
        self.script = json.loads(process.stdout.readline())
        self.address = self.script["listening"]
        self.counts = None  # once it has ended
        self.begin = time.monotonic(), cpu_seconds(process.pid)

    def busy(self):
        """The share of a core that it has taken since the last call."""
        now = time.monotonic(), cpu_seconds(self.process.pid)
        share = (now[1] - self.begin[1]) / (now[0] - self.begin[0])
        self.begin = now
        return share

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.counts = json.loads(self.process.communicate(timeout=30)[0])


@contextlib.contextmanager
def scripted(settings, *flags):
    argv = [settings.build / "tests/bench/castor-scripted-server", *flags]
    process = subprocess.Popen(command(argv, settings.server_cpu), stdout=subprocess.PIPE,
                               text=True)
    try:
        server = Scripted(process)
        yield server
        server.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Castor:
    """A running castor-server."""

    def __init__(self, process, address, metrics):
        self.process, self.address, self.metrics = process, address, metrics

    def calls(self):
        """{status code: calls that compute}, by its own count."""
        counts = {}
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as page:
            for line in page.read().decode().splitlines():
                series = re.match(r'castor_requests_total{(.*)} (\S+)$', line)
                if not series:
                    continue
                labels = dict(re.findall(r'(\w+)="([^"]*)"', series[1]))
                if labels["method"] in ("attend", "encode"):
                    counts[labels["code"]] = counts.get(labels["code"], 0) + int(float(series[2]))
        return counts


@contextlib.contextmanager
def castor_server(settings, *flags, cpu=None, cost_model_budget="0s"):
    log_path = settings.out / "castor-server.log"
    argv = [settings.build / "server/castor-server", "--listen", "127.0.0.1:0", "--metrics-listen",
            "127.0.0.1:0", "--device", "cpu", "--cost-model-budget", cost_model_budget, *flags]
    with open(log_path, "w") as log:
        process = subprocess.Popen(command(argv, cpu), stdout=log, stderr=log)
        try:
            for _ in range(600):
                found = re.search(r" listening .*grpc=(\S+) metrics=(\S+)", log_path.read_text())
                if found or process.poll() is not None:
                    break
                time.sleep(0.1)
            if not found:
                raise SystemExit(f"castor-server did not start: {log_path.read_text()}")
            yield Castor(process, found[1], found[2])
            process.terminate()
            process.wait(timeout=60)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
