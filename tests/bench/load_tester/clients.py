"""The load generators that are compared, each run once and its results read."""

import dataclasses
import json
import random
import struct

from distributions import quantile
from harness import finish
from truth import read_log

# A small attention: one token of four heads, 3 kB. All generators send as much.
HEADS, HEAD_DIM = 4, 64
ATTEND = ["--attend", 1, "--heads", HEADS, "--head-dim", HEAD_DIM]


@dataclasses.dataclass
class Loaded:
    """One run of castor-load."""
    code: int
    run: dict       # what --json wrote; {} when nothing was written
    stdout: str
    stderr: str
    log: tuple = None  # truth.read_log()

    @property
    def total(self):
        return self.run["summary"]["total"]

    def findings(self, which="validity"):
        return {finding["rule"]: finding for finding in self.run["verdict"][which]}

    def failed(self):
        return [rule for rule, finding in self.findings().items() if not finding["passed"]]


def castor_load(settings, server, *flags, subcommand="run", cpu=None, log=False, timeout=900,
                meanwhile=None, metrics=None):
    json_path, log_path = settings.out / "run.json", settings.out / "requests.jsonl"
    for path in (json_path, log_path):
        path.unlink(missing_ok=True)
    argv = [settings.castor_load, subcommand, "--server", server, "--quiet", "--json", json_path,
            *(["--metrics", metrics] if metrics else ["--no-metrics"]),
            *(["--log-requests", log_path] if log else []), *flags]
    ended = finish(argv, cpu, timeout, meanwhile)
    if ended.code not in (0, 3, 4):
        raise SystemExit(f"castor-load ended with {ended.code}: {ended.stderr}{ended.stdout}")
    run = json.loads(json_path.read_text()) if json_path.exists() else {}
    return Loaded(ended.code, run, ended.stdout, ended.stderr, read_log(log_path) if log else None)


@dataclasses.dataclass
class Peer:
    """One run of another generator."""
    calls: int             # answered OK
    errors: int
    seconds: float
    cpu_seconds: float
    latencies_ns: list     # ascending, from sending; empty where it keeps none


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def attend_message():
    """The bytes of an AttendRequest as ATTEND asks for."""
    count = HEADS * HEAD_DIM
    raw = struct.pack(f"<{count}f", *(random.gauss(0, 1) for _ in range(count)))
    shape = b"".join(map(_varint, (1, HEADS, HEAD_DIM)))
    tensor = b"\x08\x01" + _field(2, shape) + _field(3, raw)  # dtype FLOAT32
    return b"".join(_field(number, tensor) for number in (2, 3, 4))


def message_file(settings):
    path = settings.out / "attend.bin"
    if not path.exists():
        path.write_bytes(attend_message())
    return path


def ghz(settings, server, *flags, seconds, cpu=None):
    output = settings.out / "ghz.json"
    output.unlink(missing_ok=True)
    ended = finish(
        [settings.peers / "bin/ghz", "--insecure", "--proto",
         settings.root / "proto/castor/v1/attention.proto", "--import-paths",
         settings.root / "proto", "--call", "castor.v1.AttentionService/Attend", "--binary-file",
         message_file(settings), "--disable-template-data", "--disable-template-functions",
         "--duration", f"{seconds}s", "--duration-stop", "wait", "--format", "json", "--output",
         output, *(["--cpus", 1] if cpu is not None else []), *flags, server], cpu)
    if ended.code != 0:
        raise SystemExit(f"ghz ended with {ended.code}: {ended.stderr}{ended.stdout}")
    result = json.loads(output.read_text())
    good = result["statusCodeDistribution"].get("OK", 0)
    return Peer(good, result["count"] - good, result["total"] / 1e9, ended.cpu_seconds,
                sorted(d["latency"] for d in result["details"] if d["status"] == "OK"))


def python_client(settings, server, *flags, seconds, cpu=None):
    ended = finish(
        [settings.peers / "venv/bin/python",
         settings.root / "tests/bench/load_tester/python_client.py", "--server", server,
         "--message", message_file(settings), "--seconds", seconds, *flags], cpu)
    if ended.code != 0:
        raise SystemExit(f"python_client.py ended with {ended.code}: {ended.stderr}")
    result = json.loads(ended.stdout)
    return Peer(result["calls"], result["errors"], result["seconds"], result["cpu_seconds"], [])


def percentiles_ms(latencies_ns, shares):
    return [quantile(latencies_ns, share) / 1e6 for share in shares]
