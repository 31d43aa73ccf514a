"""Rows of measure.py that use castor-load for what it is for: a castor-server on one core, sent more
than it can answer, and short requests beside long ones."""

from clients import castor_load
from harness import castor_server

TEXTS = ["--encode", "8-20", "--payloads", 256]
DEADLINE = ["--deadline", "1s", "--objective", "p99 <= 1s"]

BESIDE = """
[run]
duration = "{seconds}s"
warm-up = "2s"

[load]
arrivals = "poisson"
rate = {rate}

[defaults]
deadline = "60s"

[[class]]
name = "short"
kind = "attend"
weight = {weight}
heads = 8
lengths = {{uniform = [64, 512]}}
payloads = 64
"""

LONG = """
[[class]]
name = "long"
kind = "attend"
weight = 1
heads = 1
lengths = 65536
payloads = 1
"""


def overload(settings, report):
    """Goodput at 0.5, 1, 2 and 10 times the peak, one short text a request."""
    seconds = settings.seconds(16)
    model = settings.root / ".deps/minilm"
    with castor_server(settings, "--model", f"encoder={model}", cost_model_budget="2s",
                       cpu=settings.server_cpu) as server:
        def run(*flags):
            return castor_load(settings, server.address, *TEXTS, *DEADLINE, "--duration",
                               f"{seconds}s", "--warm-up", "2s", "--connections", 32, *flags,
                               cpu=settings.client_cpu, metrics=server.metrics)

        closed = run("--callers", 32).total["ok_rate"]
        near = [run("--arrivals", "poisson", "--rate", share * closed, "--seed", seed).total
                for seed, share in enumerate((0.8, 0.9, 1.0, 1.1))]
        peak = max(total["goodput"] for total in near)
        report.add("overload: short texts, deadline 1 s: closed loop of 32; peak of goodput",
                   f"{closed:.4g}, {peak:.4g} /s")
        for times, least in ((0.5, None), (1, None), (2, 95), (10, 90)):
            loaded = run("--arrivals", "poisson", "--rate", times * peak, "--seed", 9)
            total = loaded.total
            share = 100 * total["goodput"] / peak
            outcomes = ", ".join(f"{name} {count}" for name, count in total["outcomes"].items()
                                 if count)
            report.add(f"overload: {times}x: goodput, of the peak", f"{share:.3g} %",
                       f"≥ {least} %" if least else "", share >= least if least else None)
            report.add(f"overload: {times}x: outcomes; p50, p99 of OK answers; client's lag p99; "
                       "rules that failed",
                       f"{outcomes}; {total['intended']['p50_ms']:.3g}, "
                       f"{total['intended']['p99_ms']:.4g} ms; {total['lag']['p99_ms']:.3g} ms; "
                       f"{', '.join(loaded.failed()) or 'none'}")


def isolation(settings, report):
    """Short attention alone, and beside one of 64K tokens every quarter of a minute."""
    seconds, rate = settings.seconds(60), 60
    with castor_server(settings, cost_model_budget="2s") as server:
        def run(name, text):
            path = settings.out / f"{name}.toml"
            path.write_text(text)
            return castor_load(settings, server.address, "--workload", path,
                               metrics=server.metrics).run["summary"]["classes"]

        alone = run("alone", BESIDE.format(seconds=seconds, rate=rate, weight=1))["short"]
        both = run("beside", BESIDE.format(seconds=seconds, rate=rate, weight=15 * rate) + LONG)
    short, long = both["short"], both["long"]
    added = short["intended"]["p99_ms"] - alone["intended"]["p99_ms"]
    report.add("isolation: short attention alone: p50, p99",
               f"{alone['intended']['p50_ms']:.3g}, {alone['intended']['p99_ms']:.4g} ms")
    report.add("isolation: beside 64K tokens every 15 s: p50, p99; the long ones: answers, p50",
               f"{short['intended']['p50_ms']:.3g}, {short['intended']['p99_ms']:.4g} ms; "
               f"{long['outcomes']['ok']}, {long['intended']['p50_ms'] / 1000:.3g} s")
    report.add("isolation: p99 of short ones, added by the long ones", f"{added:.3g} ms",
               "≤ 10 ms", added <= 10)
