#!/usr/bin/env python3
"""Measures the HTTP API of castor-server and prints a table.

    tests/http/measure.py --server build/server/castor-server --load build/client/load/castor-load
        --model .deps/minilm [--only get encode delay drain] [--seconds 5] [--drains 20]

get     requests for /health by wrk(1), a second and a second of the server's processor time
encode  processor time that the server takes for the embedding of a short text: base64 over HTTP
        by wrk, castor.v1 by castor-load, in turns; all else is equal
delay   how long /health takes while 2,048 long texts are embedded on another connection, and memory
drain   SIGTERM amid calls: those that the server had whole before it must be answered

Exits 1 if a drain loses such a call, exceeds its deadline or ends with another code than 0.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from castor_server import CastorServer  # noqa: E402

TINY = os.path.join(HERE, "..", "golden", "encoder", "tiny_bert")
TEXT = "the answers of the mill are what the river say"  # 12 tokens
CALLS, CALLERS, TURNS = 20000, 16, 3
TEXTS, WORDS = 2048, 200
BUSY, IDLE = 8, 20  # connections of a drain
DRAIN_SECONDS = 30

POST = """wrk.method, wrk.body = "POST", '%s'
wrk.headers["Content-Type"] = "application/json"
"""


class Server(CastorServer):
    def __init__(self, program, model):
        self.http_port = 0
        super().__init__(program, "--http-listen", "127.0.0.1:0", "--model", f"m={model}")
        self.file = f"/proc/{self.process.pid}/"

    def on_line(self, line):
        if found := re.search(r" listening .* http=\S+:(\d+)", line):
            self.http_port = int(found[1])

    def processor_seconds(self):
        with open(self.file + "stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mib(self, name):
        with open(self.file + "status") as status:
            return int(re.search(rf"{name}:\s+(\d+)", status.read())[1]) / 1024


def request(path, body=None):
    text = "" if body is None else json.dumps(body)
    method = "GET" if body is None else "POST"
    return (f"{method} {path} HTTP/1.1\r\nHost: castor\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}").encode()


def embeddings(texts, form):
    return {"model": "m", "input": texts, "encoding_format": form}


class Caller:
    """One connection. Raises OSError or HTTPException when it breaks off."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.http_port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self):
        """The status, and how many bytes the body has, once it is whole."""
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        return answer.status, len(answer.read())

    def call(self, sent):
        self.socket.sendall(sent)
        return self.answer()


def wrk(server, path, seconds, *script):
    """How many calls were answered, in how many seconds."""
    said = subprocess.run(["wrk", "-t1", f"-c{CALLERS}", f"-d{seconds:.0f}s", *script,
                           f"http://127.0.0.1:{server.http_port}{path}"],
                          check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in said and "Socket errors" not in said, said
    unit = {"ms": 1e-3, "s": 1, "m": 60}
    calls, took, of = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)\b", said).groups()
    return int(calls), float(took) * unit[of]


def get(arguments):
    with Server(arguments.server, TINY) as server:
        wrk(server, "/health", 1)
        rates, each = [], []
        for _ in range(TURNS):
            before = server.processor_seconds()
            calls, took = wrk(server, "/health", arguments.seconds)
            rates.append(calls / took)
            each.append(calls / (server.processor_seconds() - before))
    print(f"| GET /health, {CALLERS} connections | {statistics.median(rates):,.0f} a second, "
          f"{statistics.median(each):,.0f} a second of the server's processor time |", flush=True)


def encode(arguments):
    with Server(arguments.server, TINY) as server, tempfile.TemporaryDirectory() as folder:
        script, texts, result = (os.path.join(folder, name) for name in ("lua", "texts", "json"))
        with open(script, "w") as file:
            file.write(POST % json.dumps(embeddings(TEXT, "base64")))
        with open(texts, "w") as file:
            file.write(TEXT + "\n")

        def over_http(seconds):
            return wrk(server, "/v1/embeddings", seconds, "-s", script)[0]

        def over_grpc(seconds):
            done = subprocess.run(
                [arguments.load, "run", "-s", server.address, "--texts", texts, "--model", "m",
                 "--arrivals", "closed", "--callers", str(CALLERS), "--connections", str(CALLERS),
                 "-d", f"{seconds}s", "--warm-up", "0s", "--min-duration", "0s", "--no-metrics",
                 "-q", "--json", result], capture_output=True, text=True)
            assert os.path.exists(result), done.stdout + done.stderr
            with open(result) as file:
                return json.load(file)["summary"]["total"]["outcomes"]["ok"]

        how = {"HTTP": over_http, "gRPC": over_grpc}
        seconds = {name: max(1, round(1.3 * CALLS / (call(2) / 2))) for name, call in how.items()}
        costs = {name: [] for name in how}
        for _ in range(TURNS):
            for name, call in how.items():
                before = server.processor_seconds()
                calls = call(seconds[name])
                costs[name].append(1e6 * (server.processor_seconds() - before) / calls)
    ours, grpc = map(statistics.median, costs.values())
    print(f"| processor time of the server for an embedding | HTTP {ours:.1f} us, gRPC {grpc:.1f} "
          f"us: {ours / grpc:.2f} of it |", flush=True)


def probe(server, stopped):
    """Calls /health each millisecond, later if one takes longer; returns the waits in ms."""
    caller, sent, waits = Caller(server), request("/health"), []
    while not stopped():
        begin = time.perf_counter()
        assert caller.call(sent)[0] == 200
        waits.append(1000 * (time.perf_counter() - begin))
        time.sleep(max(0, 0.001 - waits[-1] / 1000))
    return waits


def told(waits):
    waits = sorted(waits)
    return (f"median {statistics.median(waits):.2f}, p99 {waits[len(waits) * 99 // 100]:.2f}, "
            f"longest {waits[-1]:.1f} ms of {len(waits)}")


def delay(arguments):
    draw = random.Random(1)
    texts = [" ".join(draw.choices(TEXT.split(), k=WORDS)) for _ in range(TEXTS)]
    with Server(arguments.server, arguments.model) as server:
        assert Caller(server).call(request("/v1/embeddings", embeddings(TEXT, "float")))[0] == 200
        end = time.monotonic() + arguments.seconds
        print(f"| /health, nothing else | {told(probe(server, lambda: time.monotonic() > end))} |",
              flush=True)
        sent, seen = request("/v1/embeddings", embeddings(texts, "float")), []
        before, begin = server.mib("VmRSS"), time.monotonic()
        (work := threading.Thread(target=lambda: seen.append(Caller(server).call(sent)))).start()
        waits = probe(server, lambda: not work.is_alive())
        took, (status, size) = time.monotonic() - begin, seen[0]
        print(f"| /health beside {TEXTS} texts of {WORDS} words | {told(waits)} |\n"
              f"| those texts | {status}, {len(sent) / 1e6:.1f} MB there, {size / 1e6:.1f} MB back "
              f"in {took:.1f} s; resident {before:.0f} MiB before, {server.mib('VmHWM'):.0f} at "
              f"its peak |", flush=True)


def calls_until_refused(server, sent, calls):
    """Adds when each request was sent whole, and its answer's status, 0 if it broke off."""
    try:
        caller = Caller(server)
        while True:
            caller.socket.sendall(sent)
            calls.append([time.monotonic(), 0])
            calls[-1][1] = caller.answer()[0]
            if calls[-1][1] != 200:
                return
    except (OSError, http.client.HTTPException):
        return


def drain(arguments):
    lost, refused, bad, answered, seconds = 0, 0, 0, 0, []
    for turn in range(arguments.drains):
        # Of a call with one text, the request or the answer is often still on its way.
        sent = request("/v1/embeddings", embeddings([TEXT] * (1 if turn % 2 else 64), "float"))
        server = Server(arguments.server, TINY)
        idle = [Caller(server) for _ in range(IDLE)]
        assert {caller.call(request("/health"))[0] for caller in idle} == {200}
        calls = [[] for _ in range(BUSY)]
        threads = [threading.Thread(target=calls_until_refused, args=(server, sent, each))
                   for each in calls]
        [thread.start() for thread in threads]
        time.sleep(random.uniform(0.2, 1))
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(2 * DRAIN_SECONDS)
        seconds.append(time.monotonic() - begin)
        server.join()
        [thread.join() for thread in threads]
        for when, status in sum(calls, []):
            answered += status == 200
            refused += when < begin and status == 503
            lost += when < begin and status not in {200, 503}
        bad += code != 0
    print(f"| {arguments.drains} drains, {BUSY} connections with calls and {IDLE} idle | "
          f"{answered} answered; sent before SIGTERM but lost {lost}, refused {refused}; {bad} "
          f"exit codes other than 0; SIGTERM to the end: median {statistics.median(seconds):.2f}, "
          f"longest {max(seconds):.2f} s |", flush=True)
    return lost + bad == 0 and max(seconds) < DRAIN_SECONDS


def main():
    parts = {"get": get, "encode": encode, "delay": delay, "drain": drain}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", help="castor-load, for encode")
    parser.add_argument("--model", help="folder of a model, for delay")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--seconds", type=float, default=5, help="how long a measurement lasts")
    parser.add_argument("--drains", type=int, default=20)
    arguments = parser.parse_args()
    print("| what | result |\n|---|---|", flush=True)
    return 1 if False in [parts[name](arguments) for name in arguments.only] else 0


if __name__ == "__main__":
    sys.exit(main())
