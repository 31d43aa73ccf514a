#!/usr/bin/env python3
"""What an ideal client must report of a castor-scripted-server with stalls.

    truth.py --server LINE.json --log REQUESTS.jsonl [--reported p50=20.1 --reported p99=900 ...]

LINE.json is the server's first line; REQUESTS.jsonl is castor-load's request log. Prints the true
percentiles in milliseconds, counted from when each request should have been sent, and how far the
reported ones are off. Ends with 1 if one is off by more than 2 %.
"""

import argparse
import json
import sys

from distributions import quantile

TOLERANCE = 0.02


def answer_time(arrival_ns, script):
    """When script.cc lets the answer leave; both from the script's begin."""
    due = arrival_ns + script["service_ns"]
    stall, every = script["stall_ns"], script["stall_every_ns"]
    if stall and due >= every:
        return max(due, due // every * every + stall)
    return due


def latencies(intended_unix_ns, script):
    """Ascending nanoseconds from the intended time, for a client and a network that take none."""
    begin = script["begin_unix_ns"]
    return sorted(answer_time(t - begin, script) - (t - begin) for t in intended_unix_ns)


def read_log(path):
    """The request log's begin, in Unix nanoseconds, and its requests."""
    with open(path) as log:
        header = json.loads(next(log))
        return header["begin_unix_ns"], [json.loads(line) for line in log]


def off(reported, true):
    """How far a figure is off, as a share of the true one."""
    return abs(reported - true) / true


def share_of(name):
    """0.999 for "p99.9"."""
    return float(name.removeprefix("p")) / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="a file with the server's first line")
    parser.add_argument("--log", required=True, help="the client's request log")
    parser.add_argument("--reported", action="append", default=[], metavar="pNN=MS")
    arguments = parser.parse_args()
    with open(arguments.server) as file:
        script = json.loads(file.readline())
    begin, requests = read_log(arguments.log)
    ideal = latencies([begin + r["intended_ns"] for r in requests], script)
    reported = dict(text.split("=") for text in arguments.reported)
    worst = 0.0
    for name in reported or ("p50", "p95", "p99", "p99.9"):
        true = quantile(ideal, share_of(name)) / 1e6
        line = f"{name}: true {true:.3f} ms"
        if name in reported:
            error = off(float(reported[name]), true)
            worst = max(worst, error)
            line += f", reported {float(reported[name]):.3f} ms, off by {error:.2%}"
        print(line)
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
