#!/usr/bin/env python3
"""Turns the JSON of one run of tests/bench/run.sh into its log: ratios first, then medians.

    report.py DIRECTORY COMMIT
"""

import datetime
import json
import math
import pathlib
import statistics
import sys


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def runs(path):
    """{benchmark name: [one dict per repetition]}, from Google Benchmark's JSON."""
    by_name = {}
    for run in read(path)["benchmarks"]:
        if run["run_type"] == "iteration":
            name = run["run_name"].removesuffix("/real_time")
            by_name.setdefault(name, []).append(run)
    return by_name


def median(repetitions, field):
    return statistics.median(run[field] for run in repetitions)


def table_lines(header, rows):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def table(header, rows):
    print("\n".join(table_lines(header, rows)))


def exponent(lengths, times):
    """The slope of the least-squares line through (log tokens, log time)."""
    xs, ys = [math.log(n) for n in lengths], [math.log(t) for t in times]
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    return (sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys))
            / sum((x - mean_x) ** 2 for x in xs))


def machine():
    cpu = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
               if line.startswith("model name"))
    flags = next(line for line in open("/proc/cpuinfo", encoding="utf-8")
                 if line.startswith("flags"))
    cores = sum(1 for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("processor"))
    widest = next((name for name in ("avx512_bf16", "avx512f", "avx2") if name in flags), "none")
    return f"{cpu}, {cores} cores, widest vectors: {widest}"


def serving(directory):
    by_name = runs(directory / "serving_bench.json")
    print("## Server against bare engine\n")
    print("256 requests of 128 to 2,048 tokens (uniform), 8 heads, head_dim 64, 32 in flight; client,"
          " server and engine share the machine's cores. Tokens/s of the best repetition, since what"
          " else runs on a shared machine only takes away; ratios of medians in brackets.\n")
    rows = []
    for dtype in ("fp32", "bf16"):
        rates = {name: [run["tokens/s"] for run in by_name[f"BM_Saturation{name}/{dtype}"]]
                 for name in ("Engine", "Server", "Shared")}
        cells = [dtype, f"{max(rates['Engine']):,.0f}"]
        for name in ("Server", "Shared"):
            ratio = max(rates[name]) / max(rates["Engine"])
            of_medians = statistics.median(rates[name]) / statistics.median(rates["Engine"])
            cells += [f"{max(rates[name]):,.0f}", f"**{ratio:.3f}** ({of_medians:.3f})"]
        rows.append(cells)
    table(["dtype", "bare engine", "server, tensors in the messages", "server / engine",
           "server, tensors in shared memory", "server / engine"], rows)

    print("One attend at a time of 16 tokens, 4 heads, head_dim 32, through the client library; microseconds, medians over repetitions of each"
          " repetition's median call:\n")
    kernel = median(by_name["BM_LatencyKernel"], "p50_us")
    engine = median(by_name["BM_LatencyEngine"], "p50_us")
    server = by_name["BM_LatencyServer"]
    total = median(server, "p50_us")
    inside = median(server, "server_us")
    table(["stage", "us"], [
        ["bare kernel", f"{kernel:.0f}"],
        ["engine: Submit to completion", f"{engine:.0f}"],
        ["server: client's call to answer", f"{total:.0f}"],
        ["**added beyond the bare kernel**", f"**{total - kernel:.0f}**"],
        ["- of it in the server: decode and stage", f"{median(server, 'decode_us'):.0f}"],
        ["- in the server: queue", f"{median(server, 'queue_us'):.0f}"],
        ["- in the server: kernel", f"{median(server, 'compute_us'):.0f}"],
        ["- in the server: from bytes to answer, all stages", f"{inside:.0f}"],
        ["- gRPC, sockets and the client", f"{total - inside:.0f}"],
    ])


def encoding(directory):
    print("## Encoder against sentence-transformers\n")
    print("all-MiniLM-L6-v2, fp32, the 512 texts of encoder_texts.txt; Castor: 8 concurrent requests"
          " of 8 texts over gRPC; sentence-transformers: one call, batches of 32.\n")
    rows, ratios = [], []
    for turn in (1, 2, 3):
        ours = runs(directory / f"encoding_bench.{turn}.json")["BM_EncodeServer"]
        theirs = read(directory / f"sentence_transformers.{turn}.json")
        rate = median(ours, "tokens/s")
        ratios.append(rate / theirs["tokens_per_second"])
        rows.append([str(turn), f"{rate:,.0f}", f"{theirs['tokens_per_second']:,}",
                     f"{ratios[-1]:.2f}", f"{median(ours, 'padded_tokens'):.0f}"])
    table(["turn", "castor-server, tokens/s", theirs["what"] + ", tokens/s", "ratio",
           "padded tokens computed"], rows)
    print(f"Median ratio **{statistics.median(ratios):.2f}**.\n")


def attention(directory):
    print("## Attention kernels\n")
    print("Milliseconds, medians, and how many times LibTorch's SDPA; dtype/heads/head_dim/tokens;"
          " ragged: 32 sequences of 10 to 90 tokens.\n")
    by_name = runs(directory / "attention_bench.json")
    groups = {}
    for name, repetitions in by_name.items():
        kernel, what = name.split("/", 1)
        groups.setdefault(what, {})[kernel] = median(repetitions, "real_time")
    kernels = sorted({kernel for row in groups.values() for kernel in row})
    rows = []
    for what, times in groups.items():
        base = times.get("sdpa")
        cells = [f"{times[k]:.3f}" + (f" ({base / times[k]:.2f}x)" if base else "")
                 if k in times else "" for k in kernels]
        rows.append([what] + cells)
    table(["what"] + kernels, rows)


def main():
    directory = pathlib.Path(sys.argv[1])
    print(f"# Benchmarks, {datetime.date.today()}, commit {sys.argv[2]}\n")
    print(f"{machine()}. Made by `tests/bench/run.sh`.\n")
    serving(directory)
    encoding(directory)
    attention(directory)


if __name__ == "__main__":
    main()
