"""Rows of measure.py: each rule of the verdict made to fail once, on the real program."""

import json
import signal
import time

from clients import ATTEND, castor_load
from harness import castor_server, finish, scripted

SHORT = ("--duration", "12s", "--warm-up", "1s")


def _stop_now_and_then(process):
    while process.poll() is None:
        time.sleep(0.7)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)


def duration(settings):
    with scripted(settings) as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 500, "--duration", "3s",
                           "--warm-up", "1s")


def early_stopping(settings):
    with scripted(settings) as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 10, *SHORT)


def stationary(settings):
    """A queue that can answer 500 requests/s gets 600."""
    with scripted(settings, "--queue", "md1", "--service-time", "2ms") as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 600, *SHORT)


def client_lag(settings):
    """The client stands still for 0.3 s of each second."""
    with scripted(settings) as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 500, *SHORT,
                           meanwhile=_stop_now_and_then)


def client_cpu(settings):
    """One core is to send 400,000 requests/s."""
    with scripted(settings, "--discard") as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 400_000, "--max-in-flight",
                           1000, "--duration", "10s", "--warm-up", "0s", cpu=settings.client_cpu)


def client_dropped(settings):
    """300 requests are in flight on average, and 10 may be."""
    with scripted(settings, "--service-time", "1s") as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 300, "--max-in-flight", 10,
                           *SHORT)


def all_answered(settings):
    """No server can make a request of castor-load's stay without an end, so a saved run says that
    some did: the program judges it anew."""
    with scripted(settings) as server:
        loaded = castor_load(settings, server.address, *ATTEND, "--rate", 500, *SHORT)
    loaded.run["clients"][0]["unfinished"] = 3
    edited, judged = settings.out / "edited.json", settings.out / "judged.json"
    edited.write_text(json.dumps(loaded.run))
    finish([settings.castor_load, "report", edited, "--quiet", "--json", judged])
    loaded.run = json.loads(judged.read_text())
    loaded.code = 4  # report's own exit code is about reporting
    return loaded


def counts_agree(settings):
    """Somebody else calls the same server meanwhile."""
    with castor_server(settings) as server:
        def call(process):
            time.sleep(4)
            finish([settings.castor_load, "run", "--server", server.address, "--no-metrics",
                    "--quiet", *ATTEND, "--rate", 50, "--duration", "2s", "--warm-up", "0s"])
        return castor_load(settings, server.address, *ATTEND, "--rate", 200, *SHORT,
                           meanwhile=call, metrics=server.metrics)


def verified(settings):
    """One answer of a hundred has a wrong bit."""
    with scripted(settings, "--one-token", "--wrong", 0.01) as server:
        return castor_load(settings, server.address, *ATTEND, "--rate", 500, "--verify", "50%",
                           *SHORT)


RULES = {"duration": duration, "early-stopping": early_stopping, "stationary": stationary,
         "client-lag": client_lag, "client-cpu": client_cpu, "client-dropped": client_dropped,
         "all-answered": all_answered, "counts-agree": counts_agree, "verified": verified}


def verdicts(settings, report):
    """Each rule made to fail once, and a run in which none does."""
    with castor_server(settings) as server:
        good = castor_load(settings, server.address, *ATTEND, "--rate", 200, *SHORT, "--verify",
                           "10%", metrics=server.metrics)
    report.add("verdict: nothing wrong: exit code, rules that failed",
               f"{good.code}, {good.failed() or 'none'}", "0, none",
               good.code == 0 and not good.failed())
    known = set(good.findings())
    report.add("verdict: rules that this script makes fail", f"{len(RULES)} of {len(known)}",
               "all", set(RULES) == known)
    for rule, provoke in RULES.items():
        loaded = provoke(settings)
        named = rule in loaded.failed() and loaded.code == 4
        others = [other for other in loaded.failed() if other != rule]
        text = loaded.findings()[rule]["text"]
        report.add(f"verdict: {rule}", f"{text} (also: {', '.join(others)})" if others else text,
                   "INVALID, named", named)
