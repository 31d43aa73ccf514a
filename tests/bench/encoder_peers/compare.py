"""Runs all contenders in turn and writes the table: see run.sh."""

import argparse
import json
import os
import pathlib
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODEL = ROOT / ".deps/minilm"
TEXTS = HERE.parent / "encoder/encoder_texts.txt"
BUILD = ROOT / "build"
ONE = "how do i reset the password of my work account"  # as in contender.py
PEERS = [("sentence-transformers", "fp32"), ("sentence-transformers", "bf16"),
         ("onnxruntime", "fp32"), ("onnxruntime", "int8"),
         ("openvino", "fp32"), ("openvino", "bf16"), ("openvino", "int8"),
         ("ctranslate2", "fp32"), ("ctranslate2", "int8")]
EXACT = PEERS[0]  # what cosines are of
TYPES = ("fp32", "bf16", "int8")


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class Peer:
    """A runtime in a process of its own (contender.py)."""

    def __init__(self, runtime, dtype, work, threads):
        self.name, self.dtype, self.log = runtime, dtype, work / f"{runtime}-{dtype}.log"
        self.process = subprocess.Popen(
            [sys.executable, HERE / "contender.py", runtime, dtype, MODEL, TEXTS, work,
             str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log.open("w"), text=True)
        self.version = self._answer()["version"]

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            last = self.log.read_text().strip().splitlines()[-1:]
            raise RuntimeError(last[0] if last else "ended without a word")
        return json.loads(line)

    def round(self, seconds):
        return self.ask(f"tokens {seconds}") | self.ask(f"one {seconds / 2}")

    def vectors(self, path):
        self.ask(f"vectors {path}")
        return np.load(path)

    def memory(self):
        return self.ask("memory")["mib"]

    def close(self):
        self.process.kill()


class Castor:
    """A castor-server, driven over gRPC by the C++ benchmarks."""

    def __init__(self, dtype, work, threads):
        self.name, self.dtype, self.work = "Castor", dtype, work
        self.flag = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[dtype]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.process = subprocess.Popen(
            [BUILD / "server/castor-server", "--listen", self.address, "--metrics-listen", "off",
             "--device", "cpu", "--cpu-threads", str(threads), "--cost-model-budget", "0s",
             "--model", f"encoder={MODEL}", "--model-dtype", self.flag],
            stdout=subprocess.DEVNULL, stderr=(work / f"castor-{dtype}.log").open("w"))
        self.one = work / "one.txt"
        self.one.write_text(ONE + "\n")
        for _ in range(600):
            if self._castor("models").returncode == 0:
                break
            if self.process.poll() is not None:
                raise RuntimeError(f"castor-server ended with {self.process.returncode}")
            time.sleep(0.1)
        self.version = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                                      capture_output=True).stdout.strip()

    def _castor(self, *arguments):
        return subprocess.run([BUILD / "client/castor", *arguments, "--server", self.address],
                              capture_output=True, text=True)

    def _calls(self, texts, clients, texts_per_request, seconds):
        out = self.work / "encoding.json"
        subprocess.run([BUILD / "tests/bench/encoding_bench", f"--server={self.address}",
                        f"--texts={texts}", f"--clients={clients}",
                        f"--texts-per-request={texts_per_request}",
                        f"--benchmark_min_time={seconds}", f"--benchmark_out={out}"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text())["benchmarks"][0]

    def round(self, seconds):
        one, four = self._calls(TEXTS, 1, 64, seconds), self._calls(TEXTS, 4, 64, seconds)
        short = self._calls(self.one, 1, 1, seconds)
        bench = subprocess.run(
            [BUILD / "tests/bench/encoder_bench", f"--model={MODEL}", f"--texts={self.one}",
             f"--dtype={self.flag}", "--benchmark_filter=encode/8",
             f"--benchmark_min_time={seconds / 2}", "--benchmark_format=json"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return {"tokens_per_s": one["tokens/s"], "four": four["tokens/s"],
                "grpc_ms": short["p50_ms"], "beside_ms": short["p50_beside_compute_ms"],
                "p50_ms": json.loads(bench)["benchmarks"][0]["real_time"], "batch": 64,
                "padded": one["padded_tokens"] / one["tokens/s"]}

    def vectors(self, path):
        done = self._castor("encode", "--text-file", str(TEXTS), "--output", "npy", "--file",
                            str(path))
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return np.load(path)

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines()
                    if line.startswith("VmHWM:"))

    def close(self):
        self.process.terminate()
        self.process.wait()


def start(work, threads, types):
    contenders, absent = [], []
    makers = [("Castor", dtype, lambda dtype=dtype: Castor(dtype, work, threads))
              for dtype in types]
    makers += [(runtime, dtype, lambda r=runtime, d=dtype: Peer(r, d, work, threads))
               for runtime, dtype in PEERS if dtype in types or (runtime, dtype) == EXACT]
    for name, dtype, make in makers:
        say(f"loading {name} {dtype}")
        try:
            contenders.append(make())
        except Exception as error:  # reported in the table, and the others go on
            absent.append(f"{name} {dtype}: {error}")
    return contenders, absent


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return platform.machine()


def median(values):
    return statistics.median(values) if values else float("nan")


def table(contenders, rounds, cosines, memory):
    lines = ["| | type | tokens/s | four clients | 12 tokens, compute | over gRPC | peak memory |"
             " cosine to fp32, mean / least | batch | padded |", "|" + "---|" * 10]
    for c in contenders:
        got = rounds[c]
        tokens = [r["tokens_per_s"] for r in got]
        four = [r["four"] for r in got if "four" in r]
        grpc = [r["grpc_ms"] for r in got if "grpc_ms" in r]
        mean, least = cosines[c]
        lines.append(
            f"| {c.name} {c.version} | {c.dtype} | {median(tokens):,.0f} "
            f"({min(tokens):,.0f} to {max(tokens):,.0f}) | "
            + (f"{median(four):,.0f}" if four else "") + " | "
            f"{median([r['p50_ms'] for r in got]):.2f} ms | "
            + (f"{median(grpc):.2f} ms" if grpc else "") + f" | {memory[c]:,.0f} MiB | "
            f"{mean:.4f} / {least:.4f} | {got[-1]['batch']} | {got[-1]['padded']:.0%} |")
    return lines


def ratios(contenders, rounds):
    """Castor against the best peer of the same type, round by round."""
    lines = ["| type | tokens/s: Castor / best peer | 12 tokens, compute: Castor / best peer |"
             " over gRPC - compute | four clients / one |", "|---|---|---|---|---|"]
    for castor in (c for c in contenders if isinstance(c, Castor)):
        peers = [c for c in contenders if isinstance(c, Peer) and c.dtype == castor.dtype]
        if not peers:
            continue
        mine = rounds[castor]

        def of(best, key, pick):
            return [r[key] / pick(rounds[p][i][key] for p in peers) for i, r in enumerate(mine)]
        speed, latency = of(peers, "tokens_per_s", max), of(peers, "p50_ms", min)
        extra = [r["beside_ms"] for r in mine]
        four = [r["four"] / r["tokens_per_s"] for r in mine]
        lines.append(
            f"| {castor.dtype} | {median(speed):.2f} ({min(speed):.2f} to {max(speed):.2f}) | "
            f"{median(latency):.2f} ({min(latency):.2f} to {max(latency):.2f}) | "
            f"{median(extra):.2f} ms | {median(four):.2f} ({min(four):.2f} to {max(four):.2f}) |")
    return lines


def write(path, threads, count, contenders, rounds, cosines, absent):
    memory = {c: c.memory() for c in contenders}
    tokens = "512 texts of tests/bench/encoder/encoder_texts.txt"
    lines = [f"{processor()}, {threads} cores. all-MiniLM-L6-v2, {tokens}; medians of {count} "
             "rounds, contenders in a random order in each.", "",
             *table(contenders, rounds, cosines, memory), "", *ratios(contenders, rounds), "",
             *[f"- Not there: {reason}" for reason in absent]]
    pathlib.Path(path).write_text("\n".join(lines).rstrip() + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--out", default="/dev/stdout")
    parser.add_argument("--type", choices=TYPES, help="only contenders of this type")
    args = parser.parse_args()
    types = (args.type,) if args.type else TYPES
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        contenders, absent = start(work, threads, types)
        say("vectors")
        vectors = {c: c.vectors(work / "vectors.npy") for c in contenders}
        exact = next(vectors[c] for c in contenders if (c.name, c.dtype) == EXACT)
        cosines = {c: ((v * exact).sum(1).mean(), (v * exact).sum(1).min())
                   for c, v in vectors.items()}
        for c in contenders:
            if c.dtype not in types:
                c.close()
        contenders = [c for c in contenders if c.dtype in types]
        rounds = {c: [] for c in contenders}
        for number in range(args.rounds + 1):
            for c in random.sample(contenders, len(contenders)):
                say(f"round {number} of {args.rounds}: {c.name} {c.dtype}")
                time.sleep(0.5)  # for the one before to fall asleep
                got = c.round(args.seconds)
                if number > 0:  # the first warms up, and finds each peer's best batch
                    rounds[c].append(got)
            # A run that is cut short leaves what it has.
            if number == args.rounds or (number > 0 and args.out != "/dev/stdout"):
                write(args.out, threads, number, contenders, rounds, cosines, absent)
        for c in contenders:
            c.close()


if __name__ == "__main__":
    main()
