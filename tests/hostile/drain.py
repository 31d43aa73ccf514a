#!/usr/bin/env python3
"""Drains castor-server while callers read large answers, and counts the answers that get lost.

    tests/hostile/drain.py --server build/server/castor-server [--drains 100] [--log FILE]

Each drain starts a server, lets callers on connections of their own make one call after another,
one of them reading slowly, and sends SIGTERM in the midst of it. Every second drain has a delay,
after which the server asks callers to leave (GOAWAY). A caller keeps count of the answers that it
has whole; the server's log says how many it sent. They must be equal, and the server must say that
all were answered and end with exit code 0. Needs Debian's python3-h2 for its parts hpack and
hyperframe, and openssl(1).
"""

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import wire
from client import Client
from peer import grpc_message
from run import TOKEN, Security

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
    `lost` says what broke off, if something did. It `reads` from an answer's first byte on."""

    def __init__(self, request: bytes, port: int, **how):
        super().__init__(daemon=True)
        self.client, self.request = Client(port, **how), request
        self.answers, self.lost, self.refused, self.reads, self.ended = 0, "", "", False, False
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
                self.answers += answer.status == "0"
                self.refused = answer.message
            except OSError as error:
                # Where nothing had come of an answer, the server may not have seen the call. If it
                # has, its count is larger than ours.
                self.refused = str(error)
                self.lost = f"{error} after {size} bytes of an answer" if size else ""
        client.close()
        self.ended = True


class Server:
    """castor-server as a separate process, which logs every call."""

    def __init__(self, program: str, delay: str, security):
        self.process = subprocess.Popen(
            [program, "--listen", "127.0.0.1:0", "--metrics-listen", "off", "--device", "cpu",
             "--cost-model-budget", "0s", "--log-level", "debug", "--drain-delay", delay,
             "--max-queued-bytes", "2GiB", *(security.arguments if security else [])],
            stderr=subprocess.PIPE, text=True)
        self.port, self.answered, self.says_all = 0, 0, False
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if not self.listening.wait(PATIENCE) or self.port == 0:
            raise SystemExit("castor-server did not start")

    def read_log(self):
        for line in self.process.stderr:
            found = re.search(r"listening grpc=127.0.0.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                self.listening.set()
            attend = " call method=castor.v1.AttentionService/Attend " in line
            self.answered += attend and " code=OK" in line
            self.says_all = self.says_all or "drained all_answered=true" in line
        self.listening.set()

    def end(self) -> int:
        code = self.process.wait(timeout=PATIENCE)
        self.reader.join()
        return code


def drain_once(program: str, megabytes: int, delay: str, security, chance) -> tuple[int, list[str]]:
    """One drain: how many answers the server sent, and what went wrong."""
    server = Server(program, delay, security)
    request = request_for(megabytes)
    callers = [Caller(request, server.port, slow=i == 0, tls=security.context if security else None,
                      token=TOKEN if security else "")
               for i in range(CALLERS if megabytes < 100 else CALLERS_OF_HUGE)]
    end = time.monotonic() + PATIENCE
    while not all(caller.reads or caller.ended for caller in callers):
        if time.monotonic() > end:
            raise SystemExit("a caller gets no answer")
        time.sleep(0.01)
    time.sleep(chance.random() * 0.2)
    server.process.send_signal(signal.SIGTERM)
    for caller in callers:
        caller.join(PATIENCE)
    code = server.end()
    wrong = [caller.lost for caller in callers if caller.lost]
    whole = sum(caller.answers for caller in callers)
    if whole != server.answered:
        wrong.append(f"{server.answered} sent, {whole} whole")
    if code != 0 or not server.says_all:
        wrong.append(f"exit code {code}, all answered: {server.says_all}")
    return server.answered, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the castor-server to drain")
    parser.add_argument("--drains", type=int, default=2, help="of each size, plaintext and TLS each")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES,
                        help="of the answers, in MiB; 0 is a small one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="also write the table to this file")
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)
    lines = ["| answers, MiB | over | drains | answers sent | drains with a loss | seen |",
             "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        security = Security(folder)
        for megabytes in arguments.sizes:
            for over, how in (("plaintext", None), ("TLS", security)):
                sent, losses = 0, []
                for drain in range(arguments.drains):
                    answers, wrong = drain_once(arguments.server, megabytes,
                                                "200ms" if drain % 2 else "0s", how, chance)
                    sent += answers
                    if wrong:
                        losses.append("; ".join(wrong))
                failed += len(losses)
                row = (f"| {megabytes or 'small'} | {over} | {arguments.drains} | {sent} | "
                       f"{len(losses)} | {losses[0] if losses else ''} |")
                lines.append(row)
                print(row, flush=True)
    if arguments.log:
        with open(arguments.log, "w") as log:
            log.write("\n".join(lines) + "\n")
    print(f"{failed} drains lost answers")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
