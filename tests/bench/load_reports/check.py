"""Reads what castor-load writes as other programs do: saved runs by the schema with jsonschema,
HdrHistogram logs with the public Python library. Prints a line for each, and fails at the first
difference.

    check.py SCHEMA FOLDER      FOLDER holds pairs of NAME.json and NAME.hlog
"""

import json
import pathlib
import re
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from jsonschema import Draft202012Validator

LOWEST, HIGHEST, DIGITS = 1000, 3_600_000_000_000, 3


def expect(condition, *what):
    if not condition:
        sys.exit("check.py: " + " ".join(str(part) for part in what))


def check_schema(schema, run, name):
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for error in validator.iter_errors(run):
        expect(False, name, error.json_path, error.message)
    # A schema that takes anything would pass, too.
    refused = 0
    for key in run:
        broken = {k: v for k, v in run.items() if k != key}
        refused += not validator.is_valid(broken)
        refused += not validator.is_valid({**run, key: {"unknown": 1}})
    expect(refused >= 2 * len(run) - 1, name, "the schema refuses only", refused)


def counts_of(histogram):
    """Counts by the lowest value of their bucket, of the library's histogram."""
    return {
        histogram.get_value_from_index(i): histogram.get_count_at_index(i)
        for i in range(histogram.counts_len)
        if histogram.get_count_at_index(i)
    }


def check_log(path, run):
    reader = HistogramLogReader(str(path), HdrHistogram(LOWEST, HIGHEST, DIGITS))
    intervals = 0
    seconds = max((client["seconds"] for client in run["clients"]), default=0)
    for second, classes in enumerate(run["seconds"]):
        for name, saved in zip(run["classes"], classes):
            histogram = reader.get_next_interval_histogram()
            expect(histogram is not None, path, "ends at second", second)
            own = saved["intended"]
            where = f"{path}, second {second}, {name}:"
            expect(histogram.get_tag() == re.sub(r"[\s,]", "_", name), where, histogram.get_tag())
            expect(counts_of(histogram) == dict(zip(own["lowest_ns"], own["counts"])), where)
            expect(histogram.get_total_count() == own["count"], where, "count")
            start = reader.get_start_time_sec() + second
            length = min(1, seconds - second) if seconds > second else 1
            expect(abs(histogram.get_start_time_stamp() / 1000 - start) < 0.002, where, "start")
            expect(abs(histogram.get_end_time_stamp() / 1000 - start - length) < 0.002, where, "end")
            intervals += 1
    expect(reader.get_next_interval_histogram() is None, path, "has more intervals than the run")
    # The greatest value stands in clear as well, in ms.
    lines = [line for line in path.read_text().splitlines() if line.startswith("Tag=")]
    for line, saved in zip(lines, (saved for second in run["seconds"] for saved in second)):
        greatest = float(line.split(",")[3])
        expect(abs(greatest - saved["intended"]["max_ns"] / 1e6) < 0.001, path, line[:60])
    return intervals


def check_percentiles(run, name):
    """The summary's figures, from the histograms alone."""
    for cls, cells in zip(run["classes"], run["cells"]):
        histogram = HdrHistogram(LOWEST, HIGHEST, DIGITS)
        for cell in cells:
            for value, count in zip(cell["intended"]["lowest_ns"], cell["intended"]["counts"]):
                histogram.record_value(value, count)
        if not histogram.get_total_count():
            continue
        figures = run["summary"]["classes"][cls]["intended"]
        for key, percentile in ("p50_ms", 50), ("p90_ms", 90), ("p99_ms", 99), ("p99_9_ms", 99.9):
            # The library rounds a rank where castor-load, as the Java original, rounds it up.
            low = histogram.get_value_at_percentile(percentile) / 1e6
            rank = 100 / histogram.get_total_count()
            high = histogram.get_value_at_percentile(min(100, percentile + rank)) / 1e6
            expect(low * 0.999 - 0.001 <= figures[key] <= high * 1.001 + 0.001,
                   name, cls, key, low, figures[key], high)


def main():
    expect(len(sys.argv) == 3, "usage: check.py SCHEMA FOLDER")
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    runs = sorted(pathlib.Path(sys.argv[2]).glob("*.json"))
    expect(runs, "there is no run in", sys.argv[2])
    for path in runs:
        run = json.loads(path.read_text())
        check_schema(schema, run, path)
        check_percentiles(run, path)
        intervals = check_log(path.with_suffix(".hlog"), run)
        print(f"{path.name}: fits the schema; {intervals} intervals in its log, all as saved")


main()
