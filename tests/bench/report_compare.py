#!/usr/bin/env python3
"""Turns the measurements of tests/bench/compare.sh into a table of ratios.

    report_compare.py DIRECTORY BEFORE AFTER
"""

import pathlib
import statistics
import subprocess
import sys

from report import machine, runs, table

TITLES = {
    "one_thread": "Kernels, one thread, fp32, 8 heads, head_dim 64",
    "exact": "Exact attention, all cores, 8 heads, head_dim 64",
    "overhead": "The engine around a device that computes nothing",
    "serving": "Serving: saturation of 8 heads, head_dim 64; latency of 4 heads, head_dim 32",
}


def commit(build):
    """The checkout's commit, and whether it had other changes."""
    folder = pathlib.Path(build).parent
    return subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12"],
                          capture_output=True, text=True, check=True).stdout.strip()


def times(directory, side, part):
    """{name: [nanoseconds of each turn]}."""
    by_name = {}
    for path in sorted(directory.glob(f"{side}.*.{part}.json")):
        for name, repetitions in runs(path).items():
            scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[repetitions[0]["time_unit"]]
            by_name.setdefault(name, []).append(repetitions[0]["real_time"] * scale)
    return by_name


def shown(nanoseconds):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def main():
    directory, builds = pathlib.Path(sys.argv[1]), sys.argv[2:4]
    turns = len(list(directory.glob("0.*.serving.json")))
    print(f"# {commit(builds[0])} against {commit(builds[1])}\n")
    print(f"{machine()}. Both builds in turn, {turns} turns; medians. The last columns are after /"
          " before: of the medians, of the least times, and the range over turns.\n")
    for part, title in TITLES.items():
        before, after = (times(directory, side, part) for side in (0, 1))
        rows = []
        for name in before:
            if name not in after:
                continue
            a, b = before[name], after[name]
            by_turn = [y / x for x, y in zip(a, b)]
            rows.append([name, shown(statistics.median(a)), shown(statistics.median(b)),
                         f"**{statistics.median(b) / statistics.median(a):.3f}**",
                         f"{min(b) / min(a):.3f}", f"{min(by_turn):.2f} to {max(by_turn):.2f}"])
        print(f"## {title}\n")
        table(["", "before", "after", "medians", "least", "turns"], rows)


main()
