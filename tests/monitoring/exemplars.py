#!/usr/bin/env python3
"""Checks that a real Prometheus reads Castor's exemplars.

Starts a castor-server that samples every trace, a collector and a Prometheus that scrapes the
server, sends some requests, and asks Prometheus for the exemplars of the latency histogram: each
must be a trace that the server has exported. Also measures what a scrape costs the server, idle
and on all processors, and counts its series.

  exemplars.py [--build build]

Needs prometheus and promtool (Debian: prometheus) and build/ with castor-server, castor-load and
span_sink (`cmake --build build --target span_sink`).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

FAMILY = "castor_request_duration_seconds_bucket"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
MOST_SERIES = 500  # beside histograms
MOST_MILLISECONDS = 5  # of the server's processor, a scrape


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read(url, accept="*/*"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def wait_until(what, holds, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = holds()
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"exemplars.py: no {what} within {seconds} s")


def processor_ms(pid):
    """Of the server's thread that answers scrapes."""
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (thread / "comm").read_text().strip() == "metrics":
            return int((thread / "schedstat").read_text().split()[0]) / 1e6
    sys.exit("exemplars.py: the server has no thread of the name metrics")


def check_cost(state, metrics, pid):
    scrapes = 300
    costs = {}
    for name, accept in (("text", "*/*"), ("OpenMetrics", OPEN_METRICS)):
        before = processor_ms(pid)
        for _ in range(scrapes):
            read(metrics, accept)
        costs[name] = (processor_ms(pid) - before) / scrapes
    print(f"a scrape costs the {state} server " +
          ", ".join(f"{ms:.2f} ms ({name})" for name, ms in costs.items()) +
          f" of processor time (at most {MOST_MILLISECONDS})")
    assert max(costs.values()) <= MOST_MILLISECONDS


def check_page(metrics):
    kind, page = read(metrics, OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
    assert page.endswith("# EOF\n")
    kind, text = read(metrics)
    assert kind.startswith("text/plain"), kind
    assert " # {" not in text
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                          capture_output=True)
    print(f"promtool check metrics: {lint.returncode} {(lint.stdout + lint.stderr).strip()}")
    series = [line for line in text.splitlines() if line and not line.startswith("#")]
    plain = [line for line in series if not re.match(r"\w+_(bucket|sum|count)[{ ]", line)]
    print(f"series: {len(series)}, {len(plain)} of them beside histograms (at most {MOST_SERIES})")
    assert lint.returncode == 0
    assert len(plain) <= MOST_SERIES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--build", type=pathlib.Path, default=root / "build")
    build = parser.parse_args().build
    folder = pathlib.Path(tempfile.mkdtemp())
    started = []

    def start(*command, **keywords):
        log = open(folder / (pathlib.Path(command[0]).name + ".log"), "w")
        process = subprocess.Popen([str(part) for part in command], stderr=log,
                                   **{"stdout": log, **keywords})
        started.append(process)
        return process

    try:
        sink = start(build / "tests/monitoring/span_sink", stdout=subprocess.PIPE, text=True)
        collector = sink.stdout.readline().strip()
        grpc, http, prometheus = free_port(), free_port(), free_port()
        server = start(build / "server/castor-server", "--listen", f"127.0.0.1:{grpc}",
                       "--metrics-listen", f"127.0.0.1:{http}", "--device", "cpu",
                       "--cost-model-budget", "0s", "--trace-endpoint", collector,
                       "--trace-sample", "1", "--log-level", "debug", "--log-format", "json",
                       "--model", f"tiny={root}/tests/golden/encoder/tiny_bert")
        metrics = f"http://127.0.0.1:{http}/metrics"
        wait_until("server", lambda: read(metrics))
        config = folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n"
                          "- job_name: castor\n  static_configs:\n"
                          f"  - targets: ['127.0.0.1:{http}']\n")
        start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
              f"--web.listen-address=127.0.0.1:{prometheus}",
              "--enable-feature=exemplar-storage")
        begin = time.time()
        subprocess.run([build / "client/load/castor-load", "run", "--server",
                        f"127.0.0.1:{grpc}", "--attend", "4-256", "--heads", "1", "--arrivals",
                        "poisson", "--rate", "50", "--warm-up", "0s", "--duration", "5s"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

        def query():
            arguments = urllib.parse.urlencode(
                {"query": FAMILY, "start": begin - 60, "end": time.time() + 60})
            answer = json.loads(
                read(f"http://127.0.0.1:{prometheus}/api/v1/query_exemplars?{arguments}")[1])
            return [(series["seriesLabels"], exemplar) for series in answer["data"]
                    for exemplar in series["exemplars"]]

        found = wait_until("exemplar in Prometheus", query)
        log = (folder / "castor-server.log").read_text().splitlines()
        calls = {line["trace_id"]: line for line in map(json.loads, log) if "trace_id" in line}
        for labels, exemplar in found:
            call = calls[exemplar["labels"]["trace_id"]]
            assert call["span_id"] == exemplar["labels"]["span_id"]
            assert abs(call["seconds"] - float(exemplar["value"])) < 1e-6, (call, exemplar)
            assert float(exemplar["value"]) <= float(labels["le"])
        print(f"Prometheus read {len(found)} exemplars, each of them a call in the server's log; "
              f"such as {json.dumps(found[0][1])} in le={found[0][0]['le']}")
        check_page(metrics)
        check_cost("idle", metrics, server.pid)
        load = start(build / "client/load/castor-load", "run", "--server", f"127.0.0.1:{grpc}",
                     "--attend", "4-256", "--heads", "8", "--arrivals", "closed", "--callers",
                     "64", "--warm-up", "0s", "--duration", "60s")
        wait_until("load", lambda: float(re.search(
            r"^castor_inflight_requests (\S+)", read(metrics)[1], re.M).group(1)) >= 32)
        check_cost("busy", metrics, server.pid)
        assert load.poll() is None, "the load ended too early"
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
