#!/usr/bin/env python3
"""Turns the measurements of one run of tests/bench/attention/approximate.sh into its log.

    report_approximate.py DIRECTORY COMMIT
"""

import datetime
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from report import exponent, machine, median, runs, table  # noqa: E402

LENGTHS = [1024, 4096, 16384]
NAMES = {"clustered": "clustered C=100", "improved_clustered": "improved C=100 k=32",
         "cast": "CAST TOP_K κ=256"}
GOALS = {"clustered": [4, 15, 60], "improved_clustered": [3, 11, 40], "cast": [3, 10, 30]}
ROWS = ["cpu-avx512", "cpu-avx2", "cpu-portable"]
AUTHORS = {"clustered": "clustered", "improved_clustered": "improved"}


def least(repetitions, field):
    return min(run[field] for run in repetitions)


def main():
    directory, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
    by_name = runs(directory / "approximate_bench.json")

    def times_of(prefix, statistic=least):
        return [statistic(by_name[f"{prefix}/{n}"], "real_time") for n in LENGTHS]

    def ratios(base, times):
        return [f"{a / b:.3g}" for a, b in zip(base, times)]

    print(f"# Approximate attention, {datetime.date.today().isoformat()}, commit {commit}\n")
    print(f"{machine()}. fp32, one request, 8 heads, head_dim 64, all cores; milliseconds. Repetitions"
          " in random order, of which the least counts, since what else runs on a shared machine"
          " can only add; \"by medians\" has the ratios of medians.\n")
    print("## Against LibTorch's SDPA\n")
    print("Inputs: gaussian, independent normal queries, the worst case for clustering; centres,"
          " queries around 200 centres, as trained models' are.\n")
    header = ["kernel", "row", "inputs", *(f"N = {n // 1024}K" for n in LENGTHS),
              "times SDPA's speed (goal)", "by medians", "exponent 4K to 16K"]
    sdpa = times_of("sdpa")
    rows = [["LibTorch's SDPA", "", "any", *(f"{t:,.2f}" for t in sdpa), "1", "1",
             f"{exponent(LENGTHS[1:], sdpa[1:]):.2f}"]]
    sdpa_median = times_of("sdpa", median)
    serving = {}  # medians of the first row of each kernel
    for what, name in NAMES.items():
        # In the order of the variant table: the first row of a kernel is the one that serves it.
        prefixes = sorted({key.rsplit("/", 1)[0] for key in by_name if key.startswith(what + "/")},
                          key=lambda prefix: (ROWS.index(prefix.split("/")[1]),
                                              prefix.split("/")[2] != "gaussian"))
        for prefix in prefixes:
            times = times_of(prefix)
            medians = times_of(prefix, median)
            serving.setdefault(what, medians)
            _, backend, inputs = prefix.split("/")
            shown = [f"**{ratio}** ({goal})" for ratio, goal in zip(ratios(sdpa, times),
                                                                    GOALS[what])]
            rows.append([name, backend, inputs, *(f"{t:,.2f}" for t in times), " / ".join(shown),
                         " / ".join(ratios(sdpa_median, medians)),
                         f"{exponent(LENGTHS[1:], times[1:]):.2f}"])
    table(header, rows)
    print("CAST has N/κ surrogate tokens, so its affinities grow with N²/κ: an exponent above 1 is"
          " its definition's.\n")

    authors = {}
    for line in (directory / "fast_transformers.jsonl").read_text(encoding="utf-8").splitlines():
        figure = json.loads(line)
        authors.setdefault(figure["kernel"], {})[figure["tokens"]] = figure["ms"]
    print("## Against the clustered paper's own kernels (pytorch-fast-transformers)\n")
    print("Medians on both sides; gaussian inputs.\n")
    rows = []
    for what, theirs in AUTHORS.items():
        for n, ours in zip(LENGTHS, serving[what]):
            rows.append([NAMES[what], str(n), f"{authors[theirs][n]:,.1f}", f"{ours:,.2f}",
                         f"**{authors[theirs][n] / ours:.1f}**"])
    table(["kernel", "N", "theirs, ms", "ours, ms", "times as fast"], rows)


if __name__ == "__main__":
    main()
