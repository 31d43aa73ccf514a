"""Makes the models, measures every contender in turn and writes the table: see run.sh."""

import argparse
import json
import os
import pathlib
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build"
TOKENIZER = ROOT / ".deps/minilm"
PEERS = ("sentence-transformers", "onnxruntime", "openvino")
LAYERS = {"xlm-roberta": (12, 0), "modernbert": (8, 14)}  # that see all tokens, and that do not
CLUSTERS, TOPK = 100, 32
KERNELS = {"exact": ["--kernel", "vanilla"],
           "improved": ["--kernel", f"improved-clustered,clusters={CLUSTERS},topk={TOPK}"]}


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return "unknown"


def write_document(path, tokens):
    """A text of that many tokens, [CLS] and [SEP] included: words that are one token each."""
    vocabulary = json.loads((TOKENIZER / "tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha()
                   and word.islower() and len(word) > 2)
    path.write_text(" ".join(random.Random(1).choices(words, k=tokens - 2)) + "\n")


class Server:
    """A castor-server with one model."""

    def __init__(self, model, threads, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.process = subprocess.Popen(
            [BUILD / "server/castor-server", "--listen", self.address, "--metrics-listen", "off",
             "--device", "cpu", "--cpu-threads", str(threads), "--cost-model-budget", "0s",
             "--model", f"encoder={model}", "--max-request-time", "1h", "--max-deadline", "1h",
             "--max-message-bytes", "1GiB"],
            stdout=subprocess.DEVNULL, stderr=log.open("w"))
        for _ in range(1200):
            if self.castor("models").returncode == 0:
                return
            if self.process.poll() is not None:
                raise RuntimeError(log.read_text()[-400:])
            time.sleep(0.1)
        raise RuntimeError("castor-server did not start")

    def castor(self, *arguments):
        return subprocess.run([BUILD / "client/castor", *map(str, arguments), "--server",
                               self.address], capture_output=True, text=True)

    def ask(self, *arguments):
        done = self.castor(*arguments, "--output", "json", "--timeout", "3600")
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)

    def mib(self, key):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines()
                    if line.startswith(key + ":"))

    def close(self):
        self.process.terminate()
        self.process.wait()


def encode(kernel, model, document, tokens, threads, work):
    server = Server(model, threads, work / "server.log")
    try:
        server.ask("encode", "some words to begin with")
        pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
        answer = server.ask("encode", "--text-file", document, *KERNELS[kernel])
        assert answer["sequences"][0]["tokens"] == tokens, answer["sequences"][0]["tokens"]
        return {"seconds": [answer["round_trip_us"] / 1e6], "peak_mib": server.mib("VmHWM")}
    finally:
        server.close()


def attend(kernel, model, tokens, threads, work):
    """Seconds of one layer's attention alone."""
    server = Server(model, threads, work / "server.log")
    try:
        return server.ask("attend", "--lengths", tokens, "--heads", 12, "--head-dim", 64,
                          "--no-check", *KERNELS[kernel])["timing"]["compute_us"] / 1e6
    finally:
        server.close()


def measure_peer(runtime, model, tokens, threads, work, most_gib):
    def limit():  # so that a runtime that wants more memory than there is ends alone
        resource.setrlimit(resource.RLIMIT_AS, (most_gib << 30, most_gib << 30))
    log = work / f"{runtime}.log"
    done = subprocess.run(
        [sys.executable, HERE / "peer.py", runtime, model, str(tokens), str(threads), work, "1"],
        stdout=subprocess.PIPE, stderr=log.open("w"), text=True, preexec_fn=limit)
    if done.returncode != 0:
        last = (log.read_text().strip().splitlines() or ["ended without a word"])[-1]
        raise RuntimeError(last[:200])
    return json.loads(done.stdout)


def median(values):
    return statistics.median(values) if values else float("nan")


def weights_mib(model):
    return sum(file.stat().st_size for file in model.glob("*.safetensors")) / 2**20


def rows_of(kind, tokens, results, absent, weights):
    lines = []
    for name, got in results.items():
        seconds = [s for r in got for s in r["seconds"]]
        if not got:
            lines.append(f"| {kind} | {tokens:,} | {name} | {absent.get(name, '')} | | |")
            continue
        peak = median([r["peak_mib"] for r in got])
        lines.append(f"| {kind} | {tokens:,} | {name} | {median(seconds):.2f} s "
                     f"({min(seconds):.2f} to {max(seconds):.2f}) | {peak:,.0f} MiB | "
                     f"{peak - weights:,.0f} MiB |")
    return lines


def ratio_of(kind, tokens, results, attention, weights):
    """Castor against the best peer, and improved clustered against Amdahl's law."""
    def seconds(name):
        return median([s for r in results[name] for s in r["seconds"]])

    def peak(name):
        return median([r["peak_mib"] for r in results[name]])
    peers = [p for p in PEERS if results.get(p)]
    exact, improved = seconds("Castor, exact"), seconds("Castor, improved clustered")
    layers, _ = LAYERS[kind]
    beside = exact - layers * attention["exact"]
    allowed = exact / (beside + layers * attention["improved"])
    best_time = min(map(seconds, peers), default=float("nan"))
    best_peak, own = min(map(peak, peers), default=float("nan")), peak("Castor, exact")
    return (f"| {kind} | {tokens:,} | {best_time / exact:.2f} | {own / best_peak:.2f} | "
            f"{(own - weights) / (best_peak - weights):.2f} | {exact / improved:.2f} | {allowed:.2f} | "
            f"{exact / improved / allowed:.2f} |")


def compare(kind, tokens, args, threads, work):
    model, document = work / f"{kind}-{tokens}", work / f"{tokens}.txt"
    subprocess.run([sys.executable, HERE / "make_model.py", kind, TOKENIZER, model, str(tokens)],
                   check=True, stdout=subprocess.DEVNULL)
    write_document(document, tokens)
    makers = {"Castor, exact": lambda: encode("exact", model, document, tokens, threads, work),
              "Castor, improved clustered":
                  lambda: encode("improved", model, document, tokens, threads, work)}
    for runtime in args.runtimes.split(","):
        makers[runtime] = lambda r=runtime: measure_peer(r, model, tokens, threads, model,
                                                         args.most_gib)
    results, absent = {name: [] for name in makers}, {}
    attention = {kernel: [] for kernel in KERNELS}
    for number in range(args.rounds):
        for name in random.sample(list(makers), len(makers)):
            if name in absent:
                continue
            say(f"{kind}, {tokens} tokens, round {number + 1} of {args.rounds}: {name}")
            try:
                results[name].append(makers[name]())
            except RuntimeError as error:  # named in the table, and the others go on
                absent[name] = str(error)
                say(f"{name}: {error}")
        for kernel, times in attention.items():
            times.append(attend(kernel, model, tokens, threads, work))
    layer = {kernel: median(times) for kernel, times in attention.items()}
    weights = weights_mib(model)
    return (rows_of(kind, tokens, results, absent, weights),
            ratio_of(kind, tokens, results, layer, weights),
            f"- {kind}, {tokens:,} tokens: one layer's attention alone takes {layer['exact']:.3f} s"
            f" exact, {layer['improved']:.4f} s improved clustered.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="2048,8192")
    parser.add_argument("--models", default="xlm-roberta,modernbert")
    parser.add_argument("--runtimes", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-gib", type=int, default=18)
    parser.add_argument("out", nargs="?", default="/dev/stdout")
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    table = ["| model | tokens | runtime | text to vector | peak memory | less the weights |",
             "|---|---|---|---|---|---|"]
    ratios = ["| model | tokens | best peer's time / exact | peak memory, exact / best peer | "
              "less the weights | exact / improved | Amdahl allows | reached |",
              "|---|---|---|---|---|---|---|---|"]
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.models.split(","):
            for tokens in map(int, args.lengths.split(",")):
                rows, ratio, note = compare(kind, tokens, args, threads, pathlib.Path(folder))
                table += rows
                ratios.append(ratio)
                notes.append(note)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True).stdout.strip()
    lines = [f"{processor()}, {threads} cores, float32, commit {commit}. Random weights, 768 "
             f"dimensions, 12 heads; improved clustered with {CLUSTERS} clusters and {TOPK} keys. "
             f"Medians of {args.rounds} rounds, a fresh process each time, contenders in a random "
             "order; Castor's time is over gRPC and includes tokenizing. Peak memory is the process's"
             " own after loading; the last column takes the checkpoint's size from it.", "",
             *table, "", *ratios, "", *notes]
    pathlib.Path(args.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
