#!/usr/bin/env python3
"""Draws README's plot of attention's time against its length, attention.svg, from a log.

    attention.py LOG                      draws what LOG has
    attention.py --measure PROGRAM LOG    measures, writes LOG, and draws it; about 4 minutes

LOG is a Markdown file in tests/bench/logs; PROGRAM is build/tests/bench/attention_by_length.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from report import exponent, machine, table_lines  # noqa: E402

LENGTHS = [1024 << i for i in range(7)]
NAMES = {"vanilla": "exact", "sdpa": "LibTorch's SDPA", "cast": "CAST",
         "improved_clustered": "improved clustered", "clustered": "clustered"}
APPROXIMATIONS = ["improved_clustered", "clustered"]
TIMES, ERRORS, NOISE = "Milliseconds", "Relative error", "Gaussian noise, 4K tokens"

# ---- The log.


def short(tokens):
    return f"{tokens // 1024}K"


def measure(program):
    """{(inputs, tokens, kernel): a line of the program's output}"""
    found = {}
    for inputs, tokens in [("gaussian", 4096), *(("groups", n) for n in LENGTHS)]:
        print("measuring", short(tokens), inputs, file=sys.stderr)
        out = subprocess.run([program, str(tokens), inputs], check=True, capture_output=True,
                             text=True).stdout
        for line in map(json.loads, out.splitlines()):
            found[inputs, tokens, line["kernel"]] = line
    return found


def log_lines(found, commit, load):
    groups = {kernel: [found["groups", n, kernel] for n in LENGTHS] for kernel in NAMES}
    columns = [short(n) for n in LENGTHS]
    lines = [
        f"# Attention by length, {datetime.date.today()}, commit {commit}\n",
        f"{machine()}; load average {load:.1f} at the start. One request in float32, 8 heads,"
        " head_dim 64, all cores. Made by `tests/bench/plots/attention.py`, which also draws"
        " [the plot](../plots/attention.svg).\n",
        "Queries lie in 64 groups; keys and values are Gaussian. 100 clusters, 32 keys for improved"
        " clustered, clusters of 256 tokens for CAST, whose surrogate tokens and gate are random."
        " Each kernel runs several times, and the least time counts; a run of 20 s is the only one."
        " Other work on the machine adds to all times: compare ratios.\n",
        f"## {TIMES}\n",
        "The exponent is that of a power of the length, fitted from 4K on.\n",
    ]
    lines += table_lines(["kernel", *columns, "exponent"], [
        [NAMES[kernel], *(f"{point['ms']:,.2f}" for point in points),
         f"{exponent(LENGTHS[2:], [point['ms'] for point in points[2:]]):.2f}"]
        for kernel, points in groups.items()])
    lines += [f"## {ERRORS}\n",
              "The L2 distance to exact attention, divided by the L2 norm of exact attention. CAST"
              " does not approximate softmax attention: models are trained with it, and here it has"
              " random weights. Its distance is for completeness.\n"]
    lines += table_lines(["kernel", *columns], [
        [NAMES[kernel], *(f"{point['relative_error']:.3f}" for point in points)]
        for kernel, points in groups.items() if kernel != "vanilla"])
    lines += [f"## {NOISE}\n", "Queries without groups.\n"]
    noise = {kernel: found["gaussian", 4096, kernel] for kernel in NAMES}
    lines += table_lines(["kernel", "milliseconds", "relative error"], [
        [NAMES[kernel], f"{point['ms']:,.2f}", f"{point['relative_error']:.3f}"]
        for kernel, point in noise.items()])
    return lines


def read_log(text, title):
    """{kernel: its row of numbers} of the table under the heading `title`."""
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    names = {name: kernel for kernel, name in NAMES.items()}
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines() if line.startswith("|")]
    return {names[row[0]]: [float(cell.replace(",", "")) for cell in row[1:]]
            for row in rows if row[0] in names}


# ---- The plot.

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 586, 40, 352
LEAST_MS, MOST_MS = 1, 200_000

COLORS = {"sdpa": ("#6e7781", "#a8b1bb"), "vanilla": ("#0969da", "#58a6ff"),
          "cast": ("#8250df", "#bc8cff"), "improved_clustered": ("#bc4c00", "#f0883e"),
          "clustered": ("#1a7f37", "#3fb950")}  # on a light and on a dark page


def style():
    def theme(dark, page, letters, notes, grid):
        rules = [f"text {{ fill: {letters} }} .note {{ fill: {notes} }}",
                 f".page {{ fill: {page} }} .grid {{ stroke: {grid} }}"]
        for kernel, colors in COLORS.items():
            rules.append(f".{kernel} path, .{kernel} circle {{ stroke: {colors[dark]} }} "
                         f".{kernel} circle, .{kernel} .name {{ fill: {colors[dark]} }}")
        return "\n".join(rules)

    return "\n".join([
        "text { font: 13px system-ui, sans-serif } .name { font-weight: 600 }",
        "path { fill: none; stroke-width: 2 } .sdpa path { stroke-dasharray: 6 4 }",
        theme(False, "#ffffff", "#1f2328", "#59636e", "#d8dee4"),
        "@media (prefers-color-scheme: dark) {",
        theme(True, "#0d1117", "#e6edf3", "#9198a1", "#30363d"), "}"])


def x_of(tokens):
    return LEFT + (RIGHT - LEFT) * math.log2(tokens / LENGTHS[0]) / math.log2(
        LENGTHS[-1] / LENGTHS[0])


def y_of(ms):
    return BOTTOM - (BOTTOM - TOP) * math.log(ms / LEAST_MS) / math.log(MOST_MS / LEAST_MS)


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def error_text(errors):
    least, most = f"{min(errors):.2f}", f"{max(errors):.2f}"
    return f"error {least}" if least == most else f"error {least} to {most}"


def labels(times, errors):
    """The curves' names and errors at their ends, moved down where one would cover another."""
    parts, free = [], -math.inf
    for kernel in sorted(times, key=lambda kernel: -times[kernel][-1]):
        y = max(y_of(times[kernel][-1]) + 4, free)
        parts.append(f'<g class="{kernel}">{text(RIGHT + 12, y, NAMES[kernel], "name")}</g>')
        free = y + 20
        if kernel in APPROXIMATIONS:
            parts.append(text(RIGHT + 12, y + 16, error_text(errors[kernel]), "note"))
            free += 18
    return parts


def draw(times, errors):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             "<title>Time of attention against the number of tokens</title>",
             f"<style>\n{style()}\n</style>",
             f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
             text(LEFT, 22, "Time of one request (8 heads of 64, float32, 2 cores) and its error "
                  "against exact attention")]
    for power in range(math.floor(math.log10(MOST_MS / LEAST_MS)) + 1):
        ms = LEAST_MS * 10**power
        parts += [f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y_of(ms):.1f}" '
                  f'y2="{y_of(ms):.1f}"/>',
                  text(LEFT - 8, y_of(ms) + 4, f"{ms} ms" if ms < 1000 else f"{ms // 1000} s",
                       "note", "end")]
    for tokens in LENGTHS:
        parts.append(text(x_of(tokens), BOTTOM + 20, short(tokens), "note", "middle"))
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 39, "tokens", "note", "middle"))
    for kernel in NAMES:
        points = [(x_of(n), y_of(ms)) for n, ms in zip(LENGTHS, times[kernel])]
        parts.append(f'<g class="{kernel}"><path d="M'
                     + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
        parts.append("</g>")
    return parts + labels(times, errors) + ["</svg>"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=pathlib.Path)
    parser.add_argument("--measure", metavar="PROGRAM")
    options = parser.parse_args()
    if options.measure:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], check=True, cwd=HERE,
                                capture_output=True, text=True).stdout.strip()
        load = os.getloadavg()[0]
        options.log.write_text("\n".join(log_lines(measure(options.measure), commit, load)),
                               encoding="utf-8")
    log = options.log.read_text(encoding="utf-8")
    times = {kernel: row[:len(LENGTHS)] for kernel, row in read_log(log, TIMES).items()}
    parts = draw(times, read_log(log, ERRORS))
    (HERE / "attention.svg").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
