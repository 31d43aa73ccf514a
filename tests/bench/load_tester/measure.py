#!/usr/bin/env python3
"""Measures castor-load against known truths and against other load generators: see measure.sh.

    measure.py --build BUILD --peers FOLDER --commit NAME [--only PART ...] [--quick] > LOG.md
"""

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import against_peers
import against_truth
import harness
import overload
import real_server
import verdicts
from report import machine

PARTS = {
    "stalls": against_truth.stalls,
    "arrivals": against_truth.arrivals,
    "rate": against_peers.rate,
    "search": against_truth.search,
    "verdicts": verdicts.verdicts,
    "counts": real_server.counts,
    "reports": real_server.reports,
    "overload": overload.overload,
    "isolation": overload.isolation,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--only", action="append", choices=PARTS, default=[])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(prefix="castor-load.") as out:
        settings = harness.Settings(arguments.build.resolve(), arguments.peers, pathlib.Path(out),
                                    root, arguments.quick)
        print(f"# castor-load against known truths and other load generators, {arguments.commit}\n")
        print(f"{machine()}. By `tests/bench/load_tester/measure.sh"
              f"{' --quick' if arguments.quick else ''}`; scripted servers on one core, and where "
              "it says so the client on the other.\n")
        report = harness.Report()
        print("| what | measured | bound | |\n|---|---|---|---|", flush=True)
        for name in arguments.only or PARTS:
            print(f"measure: {name}", file=sys.stderr, flush=True)
            PARTS[name](settings, report)
        passed = sum(row[3] == "pass" for row in report.rows)
        print(f"\n{passed} passed, {report.missed} missed")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
