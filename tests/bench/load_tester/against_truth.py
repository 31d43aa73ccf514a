"""Rows of measure.py where the truth is known: a server that stalls, the schedule's distribution,
and the highest rate of an M/D/1 queue."""

from clients import ATTEND, castor_load, ghz, percentiles_ms
from distributions import (dispersion_probability, exponential_cdf, gamma_cdf, ks_distance,
                           ks_probability, md1_highest_rate, quantile)
from harness import scripted
from truth import TOLERANCE, latencies, off

SHARES = (0.5, 0.95, 0.99, 0.999)
# A sample of the distribution itself is this unlikely or more in one run of a thousand.
LEAST_PROBABILITY = 1e-3
# What a request may be late by. Clustered arrivals have gaps of less than a microsecond, and no sender
# can: sent times are tested from here on, and scheduled times whole.
MAX_LAG = 1e-3


def _figures(values):
    return ", ".join(f"{value:.4g}" for value in values)


NAMES = "p50, p95, p99, p99.9"


def _castor_in_stalls(settings, report, server, arrivals, rate, seconds):
    loaded = castor_load(settings, server.address, *ATTEND, "--arrivals", arrivals, "--rate", rate,
                         "--duration", f"{seconds}s", "--warm-up", "0s", log=True)
    begin, requests = loaded.log
    ideal = latencies([begin + r["intended_ns"] for r in requests], server.script)
    true = percentiles_ms(ideal, SHARES)
    keys = ("p50_ms", "p95_ms", "p99_ms", "p99_9_ms")
    intended, service = ([loaded.total[which][key] for key in keys]
                         for which in ("intended", "service"))
    worst = max(off(a, b) for a, b in zip(intended, true))
    report.add(f"stalls: castor-load, {arrivals}, {rate}/s: {NAMES} from the intended time; truth; "
               "from sending",
               f"{_figures(intended)}; {_figures(true)}; {_figures(service)} ms; the first are off "
               f"by at most {worst:.2%}", f"≤ {TOLERANCE:.0%}", worst <= TOLERANCE)


def _ghz_in_stalls(settings, report, server, flags, rate, seconds):
    # Its ticks are regular, and so the truth is that of any regular schedule over whole periods.
    every = server.script["stall_every_ns"]
    first = server.script["begin_unix_ns"] + 5 * every
    ticks = [first + i * 1_000_000_000 // rate for i in range(rate * every // 1_000_000_000)]
    true = percentiles_ms(latencies(ticks, server.script), SHARES)
    peer = ghz(settings, server.address, "--rps", rate, *flags, seconds=seconds)
    reported = percentiles_ms(peer.latencies_ns, SHARES)
    report.add(f"stalls: ghz --rps {rate} {' '.join(flags)}: {NAMES}; truth",
               f"{_figures(reported)}; {_figures(true)} ms; off by "
               + ", ".join(f"{off(a, b):.1%}" for a, b in zip(reported, true))
               + f"; {peer.calls} calls of {rate * seconds}")


def stalls(settings, report):
    """1 s stall every 10 s: percentiles from the intended time against the truth; ghz's as well."""
    seconds = settings.seconds(60)
    with scripted(settings, "--service-time", "20ms", "--stall", "1s", "--stall-every",
                  "10s") as server:
        for rate in (200, 1000):
            for arrivals in ("constant", "poisson"):
                _castor_in_stalls(settings, report, server, arrivals, rate, seconds)
            for flags in (("-c", "10"), ("-c", "50"), ("--async",)):
                _ghz_in_stalls(settings, report, server, flags, rate, seconds)
    report.add("stalls: the server's own lateness: p50, p99",
               f"{server.counts['late_p50_ns'] / 1e3:.0f}, {server.counts['late_p99_ns'] / 1e3:.0f}"
               " µs")


def _test_gaps(settings, report, server, name, flags, cdf, rate, seconds):
    loaded = castor_load(settings, server.address, *ATTEND, *flags, "--rate", rate, "--duration",
                         f"{seconds}s", "--warm-up", "1s", log=True)
    for what, key, least in (("scheduled", "intended_ns", 0), ("sent", "sent_ns", MAX_LAG)):
        times = sorted(request[key] for request in loaded.log[1] if request[key] >= 0)
        gaps = [(b - a) / 1e9 for a, b in zip(times, times[1:])]
        distance = ks_distance(gaps, cdf, least)
        probability = ks_probability(distance, len(gaps))
        report.add(f"arrivals: {name}, {rate}/s: KS test of {len(gaps)} gaps between {what} times"
                   + (f", from {least * 1e3:g} ms on" if least else ""),
                   f"distance {distance:.4f}, p = {probability:.3g}", f"p ≥ {LEAST_PROBABILITY:g}",
                   probability >= LEAST_PROBABILITY)


def arrivals(settings, report):
    """Distribution tests on the sent times; lag at 5,000 requests/s from one core."""
    with scripted(settings) as server:
        rate, seconds = 200, settings.seconds(60)
        poisson, gamma = ("--arrivals", "poisson"), ("--arrivals", "gamma", "--burstiness")
        _test_gaps(settings, report, server, "Poisson", poisson, exponential_cdf(1 / rate), rate,
                   seconds)
        for burstiness in (0.5, 2):
            _test_gaps(settings, report, server, f"gamma, burstiness {burstiness:g}",
                       (*gamma, burstiness), gamma_cdf(1 / rate, burstiness), rate, seconds)

        rate, seconds = 5000, settings.seconds(30)
        server.busy()
        loaded = castor_load(settings, server.address, *ATTEND, *poisson, "--rate", rate,
                             "--duration", f"{seconds}s", "--warm-up", "2s",
                             cpu=settings.client_cpu, log=True)
        share = server.busy()
        requests = loaded.log[1]
        window = 20_000_000
        counts = [0] * (seconds * 1_000_000_000 // window)
        for request in requests:
            if 0 <= request["sent_ns"] < len(counts) * window:
                counts[request["sent_ns"] // window] += 1
        probability = dispersion_probability(counts)
        report.add(f"arrivals: Poisson, {rate}/s from one core: chi-square test of the numbers "
                   f"sent in {len(counts)} windows of 20 ms", f"p = {probability:.3g}",
                   f"p ≥ {LEAST_PROBABILITY:g}", probability >= LEAST_PROBABILITY)
        lags = sorted(r["sent_ns"] - r["intended_ns"] for r in requests)
        measured = [quantile(lags, s) / 1e6 for s in (0.5, 0.99, 0.999)]
        report.add(f"arrivals: lag at {rate}/s from one core: p50, p99, p99.9 by the request log",
                   f"{_figures(measured)} ms", "p99 ≤ 1 ms", measured[1] <= 1)
        client = loaded.run["clients"][0]
        report.add("arrivals: the same as castor-load reports it: p99; processor time of the "
                   "client, of the server", f"{loaded.total['lag']['p99_ms']:.4g} ms; "
                   f"{client['cpu_seconds'] / client['seconds']:.0%}, {share:.0%} of a core")


def search(settings, report):
    """find-rate on a simulated M/D/1 server whose answer is known."""
    service, limit = 1e-3, 10e-3
    true = md1_highest_rate(0.99, limit, service)
    with scripted(settings, "--queue", "md1", "--service-time", "1ms") as server:
        loaded = castor_load(settings, server.address, *ATTEND, "--arrivals", "poisson",
                             "--objective", "p99 <= 10ms", "--start-rate", 200, "--warm-up", "2s",
                             "--tolerance", 0.01, "--probe", f"{settings.seconds(30)}s",
                             "--confirmation", f"{settings.seconds(240)}s",
                             subcommand="find-rate", timeout=3600)
    runs = sum("/s  " in line for line in loaded.stderr.splitlines())
    found = loaded.run["asked_rate"] if loaded.run else 0
    error = off(found, true)
    report.add("find-rate: M/D/1, 1 ms, p99 ≤ 10 ms: true rate", f"{true:.1f}/s")
    report.add(f"find-rate: castor-load's answer, {runs} runs",
               f"{found:.1f}/s, off by {error:.1%}: {loaded.stdout.splitlines()[0]}", "≤ 3%",
               error <= 0.03)
