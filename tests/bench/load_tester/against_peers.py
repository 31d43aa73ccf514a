"""Rows of measure.py on what one core can generate: castor-load, ghz and a Python client."""

import statistics

from clients import ATTEND, castor_load, ghz, python_client
from harness import scripted


def _castor(settings, server, callers, seconds):
    loaded = castor_load(settings, server.address, *ATTEND, "--arrivals", "closed", "--callers",
                         callers, "--duration", f"{seconds}s", "--warm-up", "1s", "--min-duration",
                         "1s", "--connections", 2, cpu=settings.client_cpu)
    client = loaded.run["clients"][0]
    calls = loaded.total["outcomes"]["ok"]
    return calls / client["seconds"], client["cpu_seconds"] / calls * 1e6


def _peer(run):
    def measure(settings, server, callers, seconds):
        peer = run(settings, server, callers, seconds)
        if peer.errors > 0.01 * peer.calls:
            raise SystemExit(f"{peer.errors} of the peer's calls failed")
        return peer.calls / peer.seconds, peer.cpu_seconds / peer.calls * 1e6
    return measure


def _ghz(connections):
    return _peer(lambda settings, server, callers, seconds: ghz(
        settings, server.address, "--concurrency", callers, "--connections", connections,
        seconds=seconds, cpu=settings.client_cpu))


GENERATORS = {
    "castor-load": _castor,
    "ghz, 1 connection": _ghz(1),
    "ghz, 8 connections": _ghz(8),
    "Python, grpcio": _peer(lambda settings, server, callers, seconds: python_client(
        settings, server.address, "--callers", callers, seconds=seconds,
        cpu=settings.client_cpu)),
}


def rate(settings, report):
    """Closed loop against a server that costs little, each generator alone on one core."""
    repetitions, seconds = (2, 2) if settings.quick else (5, 5)
    for callers in (64, 256):
        rates = {name: [] for name in GENERATORS}
        costs = {name: [] for name in GENERATORS}
        busy = {name: [] for name in GENERATORS}
        with scripted(settings, "--discard") as server:
            for turn in range(repetitions):
                names = list(GENERATORS)
                for name in names[turn % len(names):] + names[:turn % len(names)]:
                    server.busy()
                    per_second, cost = GENERATORS[name](settings, server, callers, seconds)
                    rates[name].append(per_second)
                    costs[name].append(cost)
                    busy[name].append(server.busy())
        for name in GENERATORS:
            report.add(f"one core, {callers} in flight: {name}, median of {repetitions}",
                       f"{statistics.median(rates[name]):,.0f}/s ({min(rates[name]):,.0f} to "
                       f"{max(rates[name]):,.0f}), {statistics.median(costs[name]):.1f} µs of "
                       f"processor a call; the server took {statistics.median(busy[name]):.0%}")
        best = max((n for n in GENERATORS if n.startswith("ghz")),
                   key=lambda n: statistics.median(rates[n]))
        for name, bound in ((best, 3), ("Python, grpcio", None)):
            ratios = [a / b for a, b in zip(rates["castor-load"], rates[name])]
            middle = statistics.median(ratios)
            report.add(f"one core, {callers} in flight: castor-load over {name}",
                       f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                       "≥ 3" if bound else "", middle >= bound if bound else None)
