#!/usr/bin/env python3
"""Loads, unloads, replaces and asks models at random while castor-server runs, and compares what
it does with a model of the service; then measures what coming and going costs.

    tests/models/run.py --server build/server/castor-server --golden tests/golden/encoder
        [--operations 1000] [--seed N] [--minilm .deps/minilm] [--cycles 100] [--large 400]
        [--log FILE]

`random`: callers ask for vectors of random models, by one text or several, while one operator
loads, unloads and replaces them, and changes what their folders hold. Each folder is one of a few
small checkpoints, so each has its own vectors, and the budget has room for three models. No answer
may be wrong or of two generations, none may be missing, and a refusal must be one that the state
explains: MODEL_NOT_FOUND only with --model-control explicit, for a model that was not loaded all
the time; MODEL_LOADING only with a hint. `kill`: the server is killed while it loads, and the next
one loads the same. With --minilm: `cycles`: the resident size after many loads of a model against
that after a few. With --large: `beside`: a served model's latency while another of so many MB
loads, against alone. Needs no packages.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from castor_server import QUICK, CastorServer  # noqa: E402

CHECKPOINTS = ["directories/bert-embed", "directories/camembert-embed", "directories/mpnet-embed",
               "directories/qwen3-embed", "directories/roberta-embed"]
TEXTS = ["a beaver builds a dam", "interest rates rose", "hello", "the dam held the water back"]
CALLERS = 4
TOLERANCE = 1e-5


class Wrong(Exception):
    """The server did what it must not."""


class Server(CastorServer):
    """With HTTP on `http`."""

    def __init__(self, program, *arguments, **how):
        self.http = ""
        super().__init__(program, "--http-listen", "127.0.0.1:0", *arguments, flags=QUICK, **how)

    def on_line(self, line):
        if " http=127" in line:
            self.http = line.split(" http=")[1].split()[0]

    def ask(self, path, body=None, timeout=60):
        """The status, and the answer's JSON."""
        request = urllib.request.Request(f"http://{self.http}{path}", method="POST",
                                         data=json.dumps(body or {}).encode())
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
            found["retry"] = error.headers.get("Retry-After")
            return error.code, found

    def vectors(self, model, texts):
        """The status, and a row for each text or the error."""
        status, answer = self.ask("/v1/embeddings", {"model": model, "input": texts})
        if status != 200:
            return status, answer
        return status, [row["embedding"] for row in answer["data"]]

    def load(self, model):
        return self.ask(f"/v2/repository/models/{model}/load")

    def unload(self, model):
        return self.ask(f"/v2/repository/models/{model}/unload")

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def alike(a, b):
    return len(a) == len(b) and all(abs(x - y) <= TOLERANCE for x, y in zip(a, b))


def code_of(answer):
    """The reason of an error, in whatever form the protocol has it."""
    error = answer.get("error", {})
    return answer.get("code") or (error.get("code") if isinstance(error, dict) else "") or ""


class Folders:
    """Folders of a root, each a link to one of the checkpoints; the links change at once."""

    def __init__(self, root, names, checkpoints):
        self.root, self.checkpoints, self.holds = root, checkpoints, {}
        for name in names:
            self.put(name, random.randrange(len(checkpoints)))

    def put(self, name, checkpoint):
        """A model that is being loaded may see some files of the one and some of the other: the
        server must then refuse it, or serve one whole. So the operator loads after it has put."""
        path = os.path.join(self.root, name)
        os.symlink(self.checkpoints[checkpoint], path + ".new")
        os.replace(path + ".new", path)
        self.holds[name] = checkpoint


class Service:
    """What may be true of each model now: the checkpoints that an answer may come from, and
    whether it may be missing. A caller compares with all that was true during its call."""

    def __init__(self):
        self.lock = threading.Lock()
        self.may = {}  # name -> list of (begin, end or None, checkpoint or None for "not loaded")

    def now(self, name, states):
        """From now on one of `states` holds."""
        with self.lock:
            at = time.monotonic()
            spans = self.may.setdefault(name, [])
            for span in spans:
                if span[1] is None:
                    span[1] = at
            spans.extend([at, None, state] for state in states)

    def during(self, name, begin, end):
        with self.lock:
            return {state for since, until, state in self.may.get(name, [])
                    if since <= end and (until is None or until >= begin)}


def random_operations(arguments, control):
    random.seed(arguments.seed)
    checkpoints = [os.path.join(arguments.golden, name) for name in CHECKPOINTS]
    known = []  # by checkpoint and text
    with Server(arguments.server, *sum((["--model", f"c{i}={path}"]
                                        for i, path in enumerate(checkpoints)), [])) as server:
        for i in range(len(checkpoints)):
            status, rows = server.vectors(f"c{i}", TEXTS)
            assert status == 200, rows
            known.append(rows)
    size = max(sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)
                   if file.endswith(".safetensors")) for folder in checkpoints)
    names = [f"m{i}" for i in range(6)]
    root = tempfile.mkdtemp(prefix="castor-models-")
    folders, service = Folders(root, names, checkpoints), Service()
    counts, failures, stop = {}, [], threading.Event()
    lock = threading.Lock()

    def note(what):
        with lock:
            counts[what] = counts.get(what, 0) + 1

    def call(server, own):
        name = own.choice(names)
        picks = [own.randrange(len(TEXTS)) for _ in range(own.choice([1, 1, 3, 8]))]
        begin = time.monotonic()
        status, answer = server.vectors(name, [TEXTS[i] for i in picks])
        end = time.monotonic()
        may = service.during(name, begin, end)
        if status == 200:
            fits = [c for c in may if c is not None and len(answer) == len(picks) and
                    all(alike(row, known[c][i]) for row, i in zip(answer, picks))]
            if not fits:
                raise Wrong(f"{name}: rows that fit none of {may}")
            return "answered"
        code = code_of(answer)
        if code == "MODEL_NOT_FOUND":
            if control == "auto" or None not in may:
                raise Wrong(f"{name}: not found, but {may}")
        elif code in ("MODEL_LOADING", "MODEL_FAILED", "TOO_LARGE"):
            if code == "TOO_LARGE" and "budget" not in json.dumps(answer):
                raise Wrong(f"{name}: {answer}")
        else:
            raise Wrong(f"{name}: {status} {answer}")
        return code

    def callers(server, seed):
        own = random.Random(seed)
        while not stop.is_set():
            try:
                note(call(server, own))
            except Exception as error:  # noqa: BLE001: the test's own report
                failures.append(f"{type(error).__name__}: {error}")
                stop.set()

    flags = ["--model-root", root, "--model-control", control, "--weights-budget",
             str(3 * size + size // 2)]
    try:
        with Server(arguments.server, *flags) as server:
            for name in names:
                # In automatic mode a model may come and go by itself at any time.
                service.now(name, {None, folders.holds[name]} if control == "auto" else {None})
            threads = [threading.Thread(target=callers, args=(server, arguments.seed + i))
                       for i in range(CALLERS)]
            for thread in threads:
                thread.start()
            present = {}
            for _ in range(arguments.operations):
                if stop.is_set():
                    break
                name, what = random.choice(names), random.choice(["load", "unload", "replace"])
                before = {present.get(name)} | ({None} if control == "auto" else set())
                if what == "replace":
                    old = folders.holds[name]
                    new = random.randrange(len(checkpoints))
                    # A load by a request may find either; so may the model that is there.
                    service.now(name, before | {old, new, None})
                    folders.put(name, new)
                else:
                    service.now(name, before | {folders.holds[name], None})
                status, answer = server.unload(name) if what == "unload" else server.load(name)
                if status == 200:
                    present[name] = None if what == "unload" else folders.holds[name]
                    note(what)
                elif code_of(answer) in ("TOO_LARGE", "MODEL_LOADING", "MODEL_FAILED"):
                    note(f"{what} {code_of(answer)}")
                    if code_of(answer) == "MODEL_FAILED":
                        raise Wrong(f"{what} {name}: {answer}")
                else:
                    raise Wrong(f"{what} {name}: {status} {answer}")
                # Any load may have unloaded others for their room.
                for other in names:
                    states = {present.get(other), None}
                    if control == "auto":
                        states.add(folders.holds[other])
                    if other == name and status != 200:
                        states |= set(range(len(checkpoints)))
                    service.now(other, states)
            stop.set()
            for thread in threads:
                thread.join()
            status, index = server.ask("/v2/repository/index")
            assert status == 200
    finally:
        stop.set()
        shutil.rmtree(root)
    if failures:
        raise Wrong(failures[0])
    if not counts.get("answered"):
        raise Wrong(f"nothing was answered: {counts}")
    return f"{control}: " + ", ".join(f"{what} {n}" for what, n in sorted(counts.items()))


def random_explicit(arguments):
    return random_operations(arguments, "explicit")


def random_auto(arguments):
    return random_operations(arguments, "auto")


def kill(arguments):
    """Killed while it loads, at random moments."""
    root = tempfile.mkdtemp(prefix="castor-models-")
    os.symlink(os.path.join(arguments.golden, CHECKPOINTS[0]), os.path.join(root, "m"))
    own = random.Random(arguments.seed)
    try:
        for _ in range(3):
            server = Server(arguments.server, "--model-root", root, "--model-control", "explicit")
            loader = threading.Thread(target=lambda s=server: _quietly(s.load, "m"))
            loader.start()
            time.sleep(own.random() * 0.02)  # the moment is what is random
            server.stop(signal.SIGKILL)
            loader.join()
        with Server(arguments.server, "--model-root", root, "--model-control", "auto") as server:
            status, rows = server.vectors("m", TEXTS[:1])
            if status != 200:
                raise Wrong(f"after kills: {rows}")
    finally:
        shutil.rmtree(root)
    return "killed 3 times while loading; the next server loads the model"


def _quietly(function, *arguments):
    try:
        function(*arguments)
    except OSError:
        pass


def cycles(arguments):
    root = tempfile.mkdtemp(prefix="castor-models-")
    os.symlink(os.path.abspath(arguments.minilm), os.path.join(root, "m"))
    try:
        with Server(arguments.server, "--model-root", root, "--model-control", "auto") as server:
            sizes = []
            for _ in range(arguments.cycles):
                status, rows = server.vectors("m", TEXTS)
                if status != 200:
                    raise Wrong(f"{rows}")
                status, answer = server.unload("m")
                if status != 200:
                    raise Wrong(f"{answer}")
                sizes.append(server.resident())
    finally:
        shutil.rmtree(root)
    early, late = max(sizes[2:6]), sizes[-1]
    report = (f"unloaded after 3 to 6 loads {early / 1024:.1f} MiB, after {len(sizes)} "
              f"{late / 1024:.1f} MiB: {late / early:.3f}")
    if late > 1.05 * early:
        raise Wrong(report)
    return report


def make_large(arguments, folder):
    """MiniLM with more words, so that its files have so many MB: the table of words grows."""
    shutil.copytree(os.path.realpath(arguments.minilm), folder,
                    ignore=shutil.ignore_patterns("model.safetensors", "*.onnx", "*.bin"))
    source = os.path.join(arguments.minilm, "model.safetensors")
    with open(source, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    name = next(key for key in header if key.endswith("word_embeddings.weight"))
    begin, end = header[name]["data_offsets"]
    rows, width = header[name]["shape"]
    added = max(0, (arguments.large << 20) - len(data)) // (4 * width)
    more = data[begin:end] * (added // rows + 1)
    table = data[begin:end] + more[:added * 4 * width]
    out, at = {}, 0
    for key, tensor in header.items():
        length = len(table) if key == name else (tensor["data_offsets"][1] -
                                                 tensor["data_offsets"][0])
        out[key] = {**tensor, "data_offsets": [at, at + length]}
        at += length
    out[name]["shape"] = [rows + added, width]
    text = json.dumps(out).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for key, tensor in header.items():
            file.write(table if key == name else data[slice(*tensor["data_offsets"])])
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config["vocab_size"] = rows + added
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)


def beside(arguments):
    root = tempfile.mkdtemp(prefix="castor-models-")
    try:
        make_large(arguments, os.path.join(root, "large"))
        flags = ["--model", f"served={arguments.minilm}", "--model-root", root,
                 "--model-control", "explicit"]

        def latencies(server, while_true):
            times = []
            while while_true(times):
                begin = time.monotonic()
                status, rows = server.vectors("served", TEXTS[0])
                if status != 200:
                    raise Wrong(f"{rows}")
                times.append(1e3 * (time.monotonic() - begin))
            return sorted(times)

        with Server(arguments.server, *flags) as server:
            latencies(server, lambda times: len(times) < 50)
            alone, loading, seconds = [], [], []
            for _ in range(5):
                alone += latencies(server, lambda times: len(times) < 200)
                done = []
                begin = time.monotonic()
                loader = threading.Thread(target=lambda: done.append(server.load("large")))
                loader.start()
                loading += latencies(server, lambda _: loader.is_alive())
                loader.join()
                seconds.append(time.monotonic() - begin)
                if done[0][0] != 200:
                    raise Wrong(f"{done[0][1]}")
                server.unload("large")
    finally:
        shutil.rmtree(root)

    def p(times, share):
        return sorted(times)[min(len(times) - 1, int(share * len(times)))]

    report = (f"{arguments.large} MB in {min(seconds):.2f} to {max(seconds):.2f} s; p50 / p99 in ms "
              f"alone {p(alone, 0.5):.1f} / {p(alone, 0.99):.1f} of {len(alone)}, beside a load "
              f"{p(loading, 0.5):.1f} / {p(loading, 0.99):.1f} of {len(loading)}")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minilm")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--log")
    arguments = parser.parse_args()
    arguments.golden = os.path.abspath(arguments.golden)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parts = [random_explicit, random_auto, kill]
    parts += [cycles] if arguments.minilm else []
    parts += [beside] if arguments.minilm and arguments.large else []
    lines, failed = [f"seed {arguments.seed}"], False
    print(lines[0], flush=True)
    for part in parts:
        begin = time.monotonic()
        try:
            seen = part(arguments)
        except Wrong as wrong:
            seen, failed = f"FAILED: {wrong}", True
        lines.append(f"{part.__name__} ({time.monotonic() - begin:.1f} s): {seen}")
        print(lines[-1], flush=True)
    if arguments.log:
        with open(arguments.log, "w") as file:
            file.write("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
