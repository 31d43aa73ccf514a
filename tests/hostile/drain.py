#!/usr/bin/env python3
"""Drains castor-server while callers read large answers, and counts the answers that get lost.

    tests/hostile/drain.py --server build/server/castor-server [--drains 100] [--log FILE]
        [--callers own build/tests/hostile/drain_caller "python3 tests/hostile/drain_caller.py"]
        [--within 0.5]

Each drain starts a server, lets callers on connections of their own make one call after another,
one of them reading slowly, and sends SIGTERM in the midst of it. Every second drain has a delay,
after which the server asks callers to leave (GOAWAY). A caller keeps count of the answers that it
has whole; the server's log says how many it sent. They must be equal, and the server must say that
all were answered and end with exit code 0, within some seconds of the last answer. Callers are
`own`, which speak HTTP/2 themselves, or commands such as drain_caller.py and drain_caller.cc, which
use gRPC: given the server's address and a file with the request, they make calls until one is
refused, print for each answer a line `answer SECONDS`, by CLOCK_MONOTONIC, then one that begins
with `ended`, and keep their channels open until the end of their input. Needs Debian's python3-h2
for its parts hpack and hyperframe, and openssl(1).
"""

import argparse
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import wire
from client import Client
from peer import grpc_message
from run import TOKEN, CastorServer, Security

# Answers in MiB; 0 is a small one.
SIZES = [0, 1, 24, 33, 200]
CALLERS = 4
CALLERS_OF_HUGE = 2  # whose answers take hundreds of MiB each

# How long a drain may take, and a server to start.
PATIENCE = 120


def request_for(megabytes: int) -> bytes:
    return grpc_message(wire.amplifier(megabytes) if megabytes else wire.small())


class Caller(threading.Thread):
    """Makes one call after another until it is told to leave. `answers` counts what it has whole;
    `lost` says what broke off, if something did. It `reads` from an answer's first byte on. The
    `last` answer came then."""

    def __init__(self, request: bytes, port: int, **how):
        super().__init__(daemon=True)
        self.client, self.request = Client(port, **how), request
        self.answers, self.lost, self.refused, self.reads, self.ended = 0, "", "", False, False
        self.last = 0.0
        self.start()

    def run(self):
        client = self.client
        while not (client.leaving or self.refused or self.lost):
            size = 0
            try:
                stream = client.begin()
                client.upload(stream, self.request)
                while not client.answers[stream].status:
                    client.frame()
                    size = client.answers[stream].size
                    self.reads = self.reads or size > 0
                answer = client.finish(stream)
                if answer.status == "0":
                    self.answers, self.last = self.answers + 1, time.monotonic()
                self.refused = answer.message
            except OSError as error:
                # Where nothing had come of an answer, the server may not have seen the call. If it
                # has, its count is larger than ours.
                self.refused = str(error)
                self.lost = f"{error} after {size} bytes of an answer" if size else ""
        client.close()
        self.ended = True


class OtherCaller(threading.Thread):
    """The same by another program, which has no slow readers."""

    def __init__(self, command: list[str], request: bytes, port: int):
        super().__init__(daemon=True)
        self.answers, self.lost, self.reads, self.ended, self.last = 0, "", False, False, 0.0
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(request)
        self.file.flush()
        self.process = subprocess.Popen([*command, f"127.0.0.1:{port}", self.file.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start()

    def run(self):
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ended":
                break
            self.answers, self.last, self.reads = self.answers + 1, float(rest), True
        self.ended = True

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Server(CastorServer):
    """castor-server as a separate process, which logs every call."""

    def __init__(self, program: str, delay: str, security):
        self.answered, self.says_all = 0, False
        super().__init__(program, "--log-level", "debug", "--drain-delay", delay,
                         "--max-queued-bytes", "2GiB", *(security.arguments if security else []))

    def on_line(self, line):
        attend = " call method=castor.v1.AttentionService/Attend " in line
        self.answered += attend and " code=OK" in line
        self.says_all = self.says_all or "drained all_answered=true" in line


def drain_once(program: str, megabytes: int, delay: str, security, chance,
               other: list[str]) -> tuple[int, float, list[str]]:
    """One drain: how many answers the server sent, how many seconds it lived after the last, and
    what went wrong."""
    server = Server(program, delay, security)
    request = request_for(megabytes)
    count = CALLERS if megabytes < 100 else CALLERS_OF_HUGE
    if other:
        callers = [OtherCaller(other, request[5:], server.port) for _ in range(count)]
    else:
        callers = [Caller(request, server.port, slow=i == 0,
                          tls=security.context if security else None,
                          token=TOKEN if security else "")
                   for i in range(count)]
    end = time.monotonic() + PATIENCE
    while not all(caller.reads or caller.ended for caller in callers):
        if time.monotonic() > end:
            raise SystemExit("a caller gets no answer")
        time.sleep(0.01)
    time.sleep(chance.random() * 0.2)
    server.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    code = server.join(PATIENCE)
    seconds = time.monotonic()
    for caller in callers:
        caller.join(PATIENCE)
        if other:
            caller.close()
    seconds -= max(begun, *(caller.last for caller in callers))
    wrong = [caller.lost for caller in callers if caller.lost]
    whole = sum(caller.answers for caller in callers)
    if whole != server.answered:
        wrong.append(f"{server.answered} sent, {whole} whole")
    if code != 0 or not server.says_all:
        wrong.append(f"exit code {code}, all answered: {server.says_all}")
    return server.answered, seconds, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the castor-server to drain")
    parser.add_argument("--drains", type=int, default=2, help="of each size, plaintext and TLS each")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES,
                        help="of the answers, in MiB; 0 is a small one")
    parser.add_argument("--callers", nargs="+", default=["own"],
                        help="own, or commands; these over plaintext alone")
    parser.add_argument("--within", type=float, default=10,
                        help="seconds from the last answer to the server's end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="also write the table to this file")
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)
    lines = ["| answers, MiB | callers | over | drains | answers sent | seconds after the last, "
             "median, most | drains with a fault | seen |",
             "|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        security = Security(folder)
        rows = [(size, callers, over) for size in arguments.sizes for callers in arguments.callers
                for over in (("plaintext", "TLS") if callers == "own" else ("plaintext",))]
        for megabytes, callers, over in rows:
            sent, losses, times = 0, [], []
            for drain in range(arguments.drains):
                answers, seconds, wrong = drain_once(
                    arguments.server, megabytes, "200ms" if drain % 2 else "0s",
                    security if over == "TLS" else None, chance,
                    [] if callers == "own" else shlex.split(callers))
                sent += answers
                times.append(seconds)
                if seconds > arguments.within:
                    wrong.append(f"the server ended {seconds:.1f} s after its last answer")
                if wrong:
                    losses.append("; ".join(wrong))
            failed += len(losses)
            row = (f"| {megabytes or 'small'} | {os.path.basename(callers)} | {over} | "
                   f"{arguments.drains} | {sent} | {statistics.median(times):.2f}, "
                   f"{max(times):.2f} | {len(losses)} | {losses[0] if losses else ''} |")
            lines.append(row)
            print(row, flush=True)
    if arguments.log:
        with open(arguments.log, "w") as log:
            log.write("\n".join(lines) + "\n")
    print(f"{failed} drains with a fault")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
