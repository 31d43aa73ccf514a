#!/usr/bin/env python3
"""Turns what one tests/bench/approximate.sh measured into the log that is kept.

    report_approximate.py DIRECTORY COMMIT
"""

import datetime
import json
import math
import pathlib
import sys

from report import machine, median, runs, table

LENGTHS = [1024, 4096, 16384]
NAMES = {"clustered": "clustered C=100", "improved": "improved C=100 k=32",
         "cast": "CAST TOP_K κ=256", "vanilla": "vanilla"}
GOALS = {"clustered": [4, 15, 60], "improved": [3, 11, 40], "cast": [3, 10, 30]}


def exponent(times):
    """The slope of a line through (log tokens, log time), by least squares."""
    xs, ys = [math.log(n) for n in LENGTHS[1:]], [math.log(t) for t in times[1:]]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    return (sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys))
            / sum((x - mean_x) ** 2 for x in xs))


def main():
    directory, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
    by_name = runs(directory / "approximate_bench.json")
    times = {what: [median(by_name[f"{what}/{n}"], "real_time") for n in LENGTHS]
             for what in ("sdpa", *NAMES)}

    print(f"# Approximate attention, {datetime.date.today().isoformat()}, commit {commit}\n")
    print(f"{machine()}. fp32, one request, 8 heads, head_dim 64, all cores; medians of repetitions"
          " in random order, milliseconds.\n")
    print("## Against LibTorch's SDPA\n")
    header = ["kernel", *(f"N = {n // 1024}K" for n in LENGTHS), "times SDPA's speed (goal)",
              "exponent 4K to 16K"]
    rows = [["LibTorch's SDPA", *(f"{t:,.2f}" for t in times["sdpa"]), "1",
             f"{exponent(times['sdpa']):.2f}"]]
    for what, name in NAMES.items():
        ratios = [a / b for a, b in zip(times["sdpa"], times[what])]
        goals = GOALS.get(what)
        shown = [f"**{r:.3g}**" + (f" ({g})" if goals else "")
                 for r, g in zip(ratios, goals or LENGTHS)]
        rows.append([name, *(f"{t:,.2f}" for t in times[what]), " / ".join(shown),
                     f"{exponent(times[what]):.2f}"])
    table(header, rows)
    print("CAST has N/κ surrogate tokens, so its affinities grow with N²/κ: an exponent above 1 is"
          " its definition's.\n")

    authors = {}
    for line in (directory / "fast_transformers.jsonl").read_text(encoding="utf-8").splitlines():
        figure = json.loads(line)
        authors.setdefault(figure["kernel"], {})[figure["tokens"]] = figure["ms"]
    print("## Against the clustered paper's own kernels (pytorch-fast-transformers)\n")
    rows = []
    for what in ("clustered", "improved"):
        for n, ours in zip(LENGTHS, times[what]):
            rows.append([NAMES[what], str(n), f"{authors[what][n]:,.1f}", f"{ours:,.2f}",
                         f"**{authors[what][n] / ours:.1f}**"])
    table(["kernel", "N", "theirs, ms", "ours, ms", "times as fast"], rows)


if __name__ == "__main__":
    main()
