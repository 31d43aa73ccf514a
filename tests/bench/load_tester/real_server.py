"""Rows of measure.py with a real castor-server: counts that must agree, and readers of reports."""

import csv
import json
import time
from collections import Counter

from clients import castor_load
from harness import castor_server, finish

MIXED = """
[run]
duration = "{seconds}s"
warm-up = "2s"

[load]
arrivals = "poisson"
bursts = {{base = {rate}, burst = {burst}, length = "500ms", period = "5s"}}

[defaults]
deadline = "2s"

[[class]]
name = "small"
kind = "attend"
weight = 8
lengths = 8
heads = 4

[[class]]
name = "cancelled"
kind = "attend"
lengths = 64
heads = 4
cancel-share = 0.5
cancel-after = "1ms"

[[class]]
name = "hurried"
kind = "attend"
lengths = 128
heads = 4
deadline = "4ms"
"""

# perf_analyzer's own, in its order, for an open loop.
PERF_ANALYZER = ["Request Rate", "Inferences/Second", "Client Send", "Network+Server Send/Recv",
                 "Server Queue", "Server Compute Input", "Server Compute Infer",
                 "Server Compute Output", "Client Recv", "p50 latency", "p90 latency",
                 "p95 latency", "p99 latency", "Avg latency"]


def counts(settings, report):
    """10^5 requests with verification, cancellations and overload: the server's counts."""
    rate, burst, seconds = 3000, 15_000, settings.seconds(40)
    workload = settings.out / "mixed.toml"
    workload.write_text(MIXED.format(rate=rate, burst=burst, seconds=seconds))
    with castor_server(settings, "--max-queued-requests", 64) as server:
        before = server.calls()
        loaded = castor_load(settings, server.address, "--workload", workload, "--verify", "1%",
                             log=True, metrics=server.metrics)
        time.sleep(1)  # cancelled calls end at the server a moment after they end here
        after = server.calls()
    outcomes = loaded.total["outcomes"]
    logged = Counter(request["outcome"] for request in loaded.log[1] if request["intended_ns"] >= 0)
    planned = loaded.total["planned"]
    report.add("counts: requests: outcomes", f"{planned}: " + ", ".join(
        f"{name} {count}" for name, count in outcomes.items() if count), "≥ 100,000, some refused",
        (planned >= 100_000 or settings.quick) and outcomes["refused"] > 0)
    report.add("counts: the request log's outcomes",
               "equal" if all(logged[name] == count for name, count in outcomes.items())
               else f"{dict(logged)}", "equal",
               all(logged[name] == count for name, count in outcomes.items()))
    calls = loaded.run["servers"][0]["calls"]
    added = {code: after.get(code, 0) - before.get(code, 0) for code in after}
    refused = added.get("RESOURCE_EXHAUSTED", 0) + added.get("UNAVAILABLE", 0)
    report.add("counts: OK, refused: the client's count of calls, warm-up and verification too; "
               "the server's",
               f"{calls['ok']}, {calls['refused']}; {added.get('OK', 0)}, {refused}")
    finding = loaded.findings()["counts-agree"]
    report.add("counts: rule counts-agree", finding["text"], "passed", finding["passed"])
    finding = loaded.findings()["verified"]
    report.add("counts: rule verified", finding["text"], "passed", finding["passed"])


def reports(settings, report):
    """Each kind of report, read by something that castor-load has no part in."""
    folder = settings.out / "reports"
    python = settings.peers / "venv/bin/python"
    with castor_server(settings) as server:
        castor_load(settings, server.address, "--attend", "1-64", "--heads", 4, "--rate", 300,
                    "--duration", "12s", "--verify", "5%", "--out", folder, metrics=server.metrics)
    run_path, log, text = folder / "run.json", folder / "run.hlog", folder / "run.txt"
    schema = settings.root / "client/load/measure/run.schema.json"
    ended = finish([python, "-c", "import json, sys, jsonschema\n"
                    "schema, run = (json.load(open(path)) for path in sys.argv[1:])\n"
                    "jsonschema.Draft202012Validator.check_schema(schema)\n"
                    "jsonschema.validate(run, schema)", schema,
                    run_path])
    report.add("reports: JSON by Python's jsonschema", "valid" if ended.code == 0 else
               ended.stderr.strip().splitlines()[-1], "valid", ended.code == 0)

    run = json.loads(run_path.read_text())
    ended = finish([python, "-c", "import sys\n"
                    "from hdrh.log import HistogramLogReader\n"
                    "from hdrh.histogram import HdrHistogram\n"
                    "total = HdrHistogram(1000, 3600 * 10**9, 3)\n"
                    "reader = HistogramLogReader(sys.argv[1], total)\n"
                    "while (one := reader.get_next_interval_histogram()) is not None:\n"
                    "    total.add(one)\n"
                    "print(total.get_total_count(), total.get_value_at_percentile(99) / 1e6)", log])
    if ended.code == 0:
        count, p99 = int(ended.stdout.split()[0]), float(ended.stdout.split()[1])
        total = run["summary"]["total"]
        same = (count == total["outcomes"]["ok"]
                and abs(p99 - total["intended"]["p99_ms"]) <= 0.002 * p99)
        report.add("reports: HDR log by PyPI's hdrhistogram: count, p99; the JSON's",
                   f"{count}, {p99:.4g} ms; {total['outcomes']['ok']}, "
                   f"{total['intended']['p99_ms']:.4g} ms", "equal", same)
    else:
        report.add("reports: HDR log by PyPI's hdrhistogram", ended.stderr.strip()[-200:], "read",
                   False)

    with open(folder / "run.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])
    report.add("reports: CSV begins with perf_analyzer's columns",
               f"{len(columns)} columns, {len(rows)} rows",
               "the same names", columns[:len(PERF_ANALYZER)] == PERF_ANALYZER)

    ended = finish([python, "-c", "import sys\n"
                    "from prometheus_client.openmetrics.parser import text_fd_to_metric_families\n"
                    "families = list(text_fd_to_metric_families(open(sys.argv[1])))\n"
                    "print(len(families), sum(len(f.samples) for f in families))", text])
    report.add("reports: OpenMetrics by PyPI's prometheus-client: families, samples",
               ended.stdout.strip() if ended.code == 0 else ended.stderr.strip()[-300:], "read",
               ended.code == 0)
