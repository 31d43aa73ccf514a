#!/usr/bin/env python3
"""Attacks castor-server over real sockets and reports what each attack cost it.

    tests/hostile/run.py --server build/server/castor-server [--seconds 2] [--log FILE]

During each attack a neighbour makes good calls one after another, each on a new connection.
Prints per attack: resident memory before, at its peak, and at the end; descriptors before and
after; the neighbour's waits. An attack fails when the server ends, misbehaves (attacks.py),
does not answer afterwards, keeps descriptors, is busy with nothing to do, or grows beyond its
budgets. Those of tls_attacks.py meet a server that speaks TLS and asks for a token; there the
neighbour, who has one, must lose no call. Good callers follow, over plaintext and TLS (honest.py).
Needs Debian's python3-h2 for its parts hpack and hyperframe, and openssl(1).
"""

import argparse
import os
import re
import resource
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from castor_server import CastorServer  # noqa: E402
from attacks import ATTACKS, HEADER_FLOODS, HEAVY, Harm, answered
from authority import Authority, caller_entry, callers_file, client_context
from bombs import BOMBS
from client import Client
from honest import HONEST, keepalive
from http_attacks import HTTP_ATTACKS
from oip_attacks import OIP_ATTACKS
from peer import Peer
from tei_attacks import GREEDY, TEI_ATTACKS, TEI_TLS_ATTACKS
from tls_attacks import TLS_ATTACKS
from token_attacks import TOKEN_ATTACKS

BUDGETS = ["--max-queued-bytes", "256MiB", "--max-transport-bytes", "512MiB",
           "--max-kept-bytes", "64MiB"]
MAX_GROWTH = 832 << 20  # those budgets
# Of connections and calls that are not let in: as many of these as the server holds at a time, some
# 40 KiB each in gRPC.
MAX_TLS_GROWTH = 256 << 20

LAZY = 8  # descriptors of its own that a server opens at the first HTTP call and the first scrape

# The share of a processor that a server may take that has nothing to do.
MAX_IDLE = 0.2

TOKEN = "castor_of_the_neighbour"


class Security:
    """What a server with TLS and callers needs, and its clients."""

    def __init__(self, folder: str):
        authority = Authority(folder)
        certificate, key = authority.issue("server")
        callers = os.path.join(folder, "callers.toml")
        with open(callers, "w") as file:
            file.write(callers_file(caller_entry("neighbour", TOKEN), caller_entry("greedy", GREEDY),
                                    "[tenant.greedy]\nmax_queued_requests = 4\n"))
        self.arguments = ["--tls-certificate", certificate, "--tls-key", key,
                          "--auth-tokens", callers]
        self.context = client_context(authority.path)


class Server(CastorServer):
    """castor-server as a separate process."""

    def __init__(self, program: str, seconds: float, descriptors: int = 0, security=None,
                 max_deadline: int = 5, rounds: int = 1, arguments=()):
        def limit():
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.seconds, self.rounds, self.max_deadline = seconds, rounds, max_deadline
        self.tls = security.context if security else None
        self.http_port = 0
        super().__init__(program, "--http-listen", "127.0.0.1:0",
                         "--max-deadline", f"{max_deadline}s", *BUDGETS,
                         *(security.arguments if security else []), *arguments, metrics=True,
                         limit=limit)

    def on_line(self, line):
        if found := re.search(r" listening .* http=\S+:(\d+)", line):
            self.http_port = int(found[1])

    def peer(self, source: str = "127.0.0.2", token: str = TOKEN) -> Peer:
        """A good client."""
        if self.tls is None:
            return Peer(self.port, acknowledge=True)
        return Peer(self.port, acknowledge=True, source=source, tls=self.tls, token=token)

    def client(self, **how) -> Client:
        """A good client that keeps to the server's windows."""
        return Client(self.port, tls=self.tls, token=TOKEN if self.tls else "", **how)

    def metric(self, series: str) -> float:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(series + " "):
                    return float(line.rsplit(" ", 1)[1])
        raise Harm(f"there is no series {series}")

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def processor_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def busy(self) -> float:
        """The share of a processor that it takes. What is left to do may take a while."""
        end = time.monotonic() + 20
        while True:
            before, begin = self.processor_seconds(), time.monotonic()
            time.sleep(0.5)
            share = (self.processor_seconds() - before) / (time.monotonic() - begin)
            if share < MAX_IDLE or time.monotonic() > end:
                return share


class Neighbour(threading.Thread):
    """Makes one call after another and records how long each takes."""

    def __init__(self, server: Server):
        super().__init__(daemon=True)
        self.server, self.waits, self.lost = server, [], 0
        self.stopped = threading.Event()
        self.start()

    def run(self):
        while not self.stopped.is_set():
            begin = time.monotonic()
            try:
                peer = self.server.peer()
                good = answered(peer)
                peer.close()
            except OSError:
                good = False
            self.lost += not good
            self.waits.append(time.monotonic() - begin)
            self.stopped.wait(0.05)

    def told(self) -> str:
        waits = sorted(self.waits)
        return (f"{waits[len(waits) * 99 // 100]:.2f} / {waits[-1]:.2f} ({len(waits)}, "
                f"{self.lost} lost)")


def watch_memory(server: Server, stopped: threading.Event, peak: list) -> None:
    while not stopped.wait(0.02):
        try:
            peak[0] = max(peak[0], server.resident())
        except OSError:
            return


def mib(size: int) -> str:
    return f"{size / 2**20:.0f}"


def answers_again(server: Server) -> bool:
    """gRPC closes connections ("Buffers full") until it has given back a flood's memory."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        peer = None
        try:
            peer = server.peer()
            if answered(peer):
                return True
        except OSError:
            pass  # closed while the call was written
        finally:
            if peer is not None:
                peer.close()
        time.sleep(0.2)
    return False


def attack_once(program: str, attack, seconds: float, rounds: int, security=None) -> tuple[str, bool]:
    server = Server(program, seconds, security=security, rounds=rounds,
                    max_deadline=getattr(attack, "max_deadline", 5),
                    arguments=getattr(attack, "arguments", ()))
    warm = server.peer()
    assert answered(warm)
    warm.close()
    time.sleep(0.2)
    before, descriptors = server.resident(), server.descriptors()
    stopped, peak = threading.Event(), [before]
    threading.Thread(target=watch_memory, args=(server, stopped, peak), daemon=True).start()
    neighbour = Neighbour(server)
    harm = ""
    try:
        seen = attack(server)
    except Harm as error:
        seen, harm = "", str(error)
    except OSError as error:
        seen, harm = "", f"the attack broke off: {error}"
    neighbour.stopped.set()
    neighbour.join()
    end = time.monotonic() + 10  # the server closes connections when it gets to them
    while server.process.poll() is None and server.descriptors() > descriptors + LAZY:
        if time.monotonic() > end:
            harm = harm or "descriptors were not given back"
            break
        time.sleep(0.05)
    stopped.set()
    after, descriptors_after = 0, 0
    if server.process.poll() is not None:
        harm = f"the server ended with {server.process.returncode}"
    else:
        after, descriptors_after = server.resident(), server.descriptors()
        limit = MAX_TLS_GROWTH if security else MAX_GROWTH
        if peak[0] - before > limit and attack not in HEADER_FLOODS:
            harm = harm or "it grew beyond its budgets"
        if (security or hasattr(attack, "serves_neighbour")) and neighbour.lost > 0:
            harm = harm or "its neighbour was not served"
        busy = server.busy()
        if busy >= MAX_IDLE:
            harm = harm or f"it takes {busy:.2f} processors for nothing"
        if not answers_again(server):
            harm = harm or "it does not answer any more"
        code = server.stop()
        if code != 0:
            harm = harm or f"it ended with {code}"
    row = (f"| {attack.__name__} | {mib(before)} / {mib(peak[0])} / {mib(after)} | "
           f"{descriptors} / {descriptors_after} | {neighbour.told()} | "
           f"{'**' + harm + '**' if harm else seen} |")
    if harm:
        row += "\n\n" + "".join(server.log)
    return row, not harm


def without_descriptors(program: str) -> tuple[str, bool]:
    """80 connections to a server limited to 64 descriptors, then a normal call."""
    import socket
    server = Server(program, 1, descriptors=64)
    before = server.descriptors()
    peers = []
    for _ in range(80):
        try:
            peers.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
        except OSError:
            pass
    time.sleep(0.5)
    most = server.descriptors()
    for peer in peers:
        peer.close()
    time.sleep(0.5)
    again = Peer(server.port, acknowledge=True)
    good = answered(again)
    again.close()
    refused = sum(server.metric(f'castor_connections_refused_total{{cause="{cause}"}}')
                  for cause in ("total", "host", "descriptors"))
    server.stop()
    row = (f"| ulimit -n 64, 80 connections | | {before} / {most} | | "
           f"{refused:.0f} turned away; {'serves again' if good else '**accepts nobody**'} |")
    return row, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the castor-server to attack")
    parser.add_argument("--seconds", type=float, default=2, help="how long a flood lasts")
    parser.add_argument("--rounds", type=int, default=2, help="how often good callers play")
    parser.add_argument("--only", metavar="PREFIX", help="make the attacks of such names alone")
    parser.add_argument("--without", metavar="PREFIX", help="make none of such names")
    parser.add_argument("--heavy", action="store_true",
                        help="also what takes gigabytes of memory for some seconds")
    parser.add_argument("--log", help="also write the table to this file")
    arguments = parser.parse_args()

    lines = ["| attack | resident MiB before / peak / after | descriptors before / after | "
             "neighbour's wait, p99 / longest, s (calls) | seen |", "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        security = Security(folder)
        plain = (ATTACKS + BOMBS + OIP_ATTACKS + TEI_ATTACKS + TOKEN_ATTACKS +
                 HTTP_ATTACKS + (HEAVY if arguments.heavy else []))
        for attack, how in ([(attack, None) for attack in plain] +
                            [(attack, security)
                             for attack in TLS_ATTACKS + BOMBS + TEI_TLS_ATTACKS] +
                            [(scene, how) for scene in HONEST for how in (None, security)
                             if arguments.seconds >= 10 or how is None or scene is not keepalive]):
            name = attack.__name__
            if not name.startswith(arguments.only or ""):
                continue
            if arguments.without and name.startswith(arguments.without):
                continue
            row, good = attack_once(arguments.server, attack, arguments.seconds, arguments.rounds,
                                    how)
            failed += not good
            lines.append(row)
            print(row, flush=True)
    if not arguments.only:
        row, good = without_descriptors(arguments.server)
        failed += not good
        lines.append(row)
        print(row, flush=True)
    if arguments.log:
        with open(arguments.log, "w") as log:
            log.write("\n".join(lines) + "\n")
    print(f"{len(lines) - 2 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
