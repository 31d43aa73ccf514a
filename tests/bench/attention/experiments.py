#!/usr/bin/env python3
"""Runs the experiments of the clustered-attention papers on the CPU's kernels and plots them.

    experiments.py PROGRAM DIRECTORY [--quick]

PROGRAM is build/tests/bench/experiments. DIRECTORY gets figures.jsonl, a line per measurement, a
README.md with the tables, and four SVG plots: time.svg and memory.svg against the number of tokens,
error.svg against the number of clusters, scaling.svg against batch and threads.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import matplotlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from report import exponent, machine, table_lines  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

KERNELS = ["vanilla", "clustered-100", "clustered-200", "clustered-300", "improved-100", "cast-256"]
ERROR_CLUSTERS = [25, 50, 100, 200, 400]


class Runner:
    def __init__(self, program, log):
        self.program, self.log = program, log

    def __call__(self, *arguments, threads=None):
        environment = dict(os.environ)
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        print("experiments:", *arguments, f"threads={threads}" if threads else "", file=sys.stderr)
        out = subprocess.run([self.program, *map(str, arguments)], env=environment, check=True,
                             capture_output=True, text=True).stdout
        self.log.write(out)
        self.log.flush()
        return json.loads(out)


def short(tokens):
    return f"{tokens // 1024}K" if tokens >= 1024 else str(tokens)


def axes(title, x, y, log_y=True):
    figure, plot = plt.subplots(figsize=(7, 4.5), layout="constrained")
    plot.set_title(title)
    plot.set_xlabel(x)
    plot.set_ylabel(y)
    plot.set_xscale("log", base=2)
    if log_y:
        plot.set_yscale("log")
    plot.grid(True, which="major", alpha=0.3)
    return figure, plot


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def against_tokens(run, directory, lengths):
    figures = {kernel: [run("time", kernel, n) for n in lengths] for kernel in KERNELS}
    for field, scale, title, unit, name in (
            ("ms", 1, "Time of one request", "milliseconds", "time.svg"),
            ("peak_extra_bytes", 2**-20, "Peak memory beyond the tensors", "MiB", "memory.svg")):
        figure, plot = axes(f"{title} (fp32, 8 heads, head_dim 64)", "tokens", unit)
        for kernel, points in figures.items():
            values = [max(point[field] * scale, 1e-3) for point in points]
            plot.plot(lengths, values, marker="o", markersize=3, label=kernel)
        plot.set_xticks(lengths, [short(n) for n in lengths])
        plot.legend()
        save(figure, directory / name)
    return figures


def describe(figures, errors, directory, lengths):
    """Writes README.md: the plots' data as tables."""
    fitted = [n for n in lengths if n >= 4096]
    columns = [short(n) for n in lengths]
    lines = ["# Experiments on the CPU\n",
             f"{machine()}. fp32, 8 heads, head_dim 64, Gaussian inputs, all cores.\n",
             "![time](time.svg) ![memory](memory.svg) ![error](error.svg) ![scaling](scaling.svg)\n",
             "Milliseconds of one request against its tokens, the least of some runs, and the "
             f"exponent of a power of the tokens fitted from {short(fitted[0])} on:\n"]
    lines += table_lines(
        ["kernel", *columns, "exponent"],
        [[kernel, *(f"{point['ms']:,.1f}" for point in points),
          f"{exponent(fitted, [point['ms'] for point in points[-len(fitted):]]):.2f}"]
         for kernel, points in figures.items()])
    lines += ["Peak memory beyond the tensors, MiB:\n"]
    lines += table_lines(
        ["kernel", *columns],
        [[kernel, *(f"{point['peak_extra_bytes'] / 2**20:.1f}" for point in points)]
         for kernel, points in figures.items()])
    unfused = 4 * 8 * 4096**2 / 2**20
    lines += [f"Unfused attention would hold {unfused:.0f} MiB of scores at 4K tokens.\n",
              f"Relative L2 error against exact attention at {short(errors[0]['tokens'])} tokens, by "
              "clusters C:\n"]
    by_kind = {}
    for point in errors:
        kernel = point["kernel"].split("-")[0]
        by_kind.setdefault((kernel, point["inputs"]), []).append(f"{point['relative_error']:.3f}")
    lines += table_lines(["kernel", "inputs", *map(str, ERROR_CLUSTERS)],
                         [[*kind, *values] for kind, values in by_kind.items()])
    (directory / "README.md").write_text("\n".join(lines), encoding="utf-8")


def error_against_clusters(run, directory, tokens):
    errors = []
    figure, plot = axes(f"Error at {tokens} tokens", "clusters C", "relative L2 error", log_y=False)
    for inputs, line in (("centres", "-"), ("gaussian", ":")):
        for kernel in ("clustered", "improved"):
            points = [run("error", f"{kernel}-{c}", tokens, inputs) for c in ERROR_CLUSTERS]
            errors += points
            plot.plot(ERROR_CLUSTERS, [point["relative_error"] for point in points], line,
                      marker="o", markersize=3, label=f"{kernel}, {inputs}")
    plot.set_xticks(ERROR_CLUSTERS, [str(c) for c in ERROR_CLUSTERS])
    plot.set_ylim(bottom=0)
    plot.legend()
    save(figure, directory / "error.svg")
    return errors


def scaling(run, directory, tokens):
    batches = [1, 2, 4, 8, 16]
    threads = list(range(1, (os.cpu_count() or 1) + 1))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for kernel in ("vanilla", "clustered-100", "improved-100", "cast-256"):
        times = [run("time", kernel, tokens, batch)["ms"] for batch in batches]
        left.plot(batches, [batch * tokens / ms for batch, ms in zip(batches, times)], marker="o",
                  markersize=3, label=kernel)
        times = [run("time", kernel, 4 * tokens, threads=count)["ms"] for count in threads]
        right.plot(threads, [times[0] / ms for ms in times], marker="o", markersize=3, label=kernel)
    left.set_title(f"Batch of sequences of {tokens} tokens")
    left.set_xlabel("sequences")
    left.set_ylabel("tokens per millisecond")
    left.set_xscale("log", base=2)
    left.set_xticks(batches, [str(batch) for batch in batches])
    left.set_yscale("log")
    right.set_title(f"One request of {4 * tokens} tokens")
    right.set_xlabel("threads")
    right.set_ylabel("times as fast as one thread")
    right.set_xticks(threads)
    for plot in (left, right):
        plot.grid(True, alpha=0.3)
        plot.legend()
    save(figure, directory / "scaling.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="up to 8K tokens only")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    lengths = [512 << i for i in range(5 if options.quick else 8)]
    matplotlib.rcParams["svg.hashsalt"] = "castor"
    with open(options.directory / "figures.jsonl", "w", encoding="utf-8") as log:
        run = Runner(options.program, log)
        figures = against_tokens(run, options.directory, lengths)
        errors = error_against_clusters(run, options.directory, 4096)
        scaling(run, options.directory, 2048)
    describe(figures, errors, options.directory, lengths)


if __name__ == "__main__":
    main()
