#!/usr/bin/env python3
"""What promtool does not check of deploy/monitoring: names, runbook, dashboards. See check.sh.

  check.py PAGE...   PAGE: /metrics of a server, saved. Several count as one.
"""

import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy/monitoring"
TESTS = ROOT / "tests/monitoring/rules"

# Exported by a server with a certain option only, which check.sh's has not.
ELSEWHERE = {"castor_trace_spans_dropped_total": "--trace-endpoint"}

FROM_PROMETHEUS = {"up", "ALERTS"}
SUFFIXES = ("_bucket", "_count", "_sum")
PARTS = ("Means", "Look at", "Do")

problems = []


def problem(text):
    problems.append(text)


def exported(pages):
    """Names of the families, and of their series."""
    names = set()
    for page in pages:
        for line in pathlib.Path(page).read_text().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                names.add(name)
                if kind == "histogram":
                    names |= {name + suffix for suffix in SUFFIXES}
    return names


def names_in(expression):
    """The metrics that an expression reads: words that are no label, function or keyword."""
    text = re.sub(r'"[^"]*"', '""', expression)
    text = re.sub(r"\{[^}]*\}", "{}", text)
    text = re.sub(r"\[[^\]]*\]", "", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    found = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w)(?!\s*\()", text)
    return {name for name in found
            if name.startswith(("castor", "process_", "up", "ALERTS"))}


def check_names(where, expression, known):
    for name in sorted(names_in(expression) - known - FROM_PROMETHEUS):
        if name not in ELSEWHERE:
            problem(f"{where}: no server exports {name}, and no rule records it")


def check_edges(where, expression, pages):
    """An edge that the histogram has not is a series that does not exist; "2" is none of "2.0"."""
    for name, labels in re.findall(r"(\w+_bucket)\{([^}]*)\}", expression):
        for edge in re.findall(r'\ble="([^"]*)"', labels):
            if not any(f'le="{edge}"' in line for page in pages
                       for line in pathlib.Path(page).read_text().splitlines()
                       if line.startswith(name + "{")):
                problem(f"{where}: {name} has no edge {edge}")


def rules_of(path):
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def windowed(name, window):
    return f"{name} ({window})" if window else name


def check_alerts(alerts):
    runbook = (MONITORING / "RUNBOOK.md").read_text()
    entries = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", runbook, re.M | re.S))
    for alert in alerts:
        name, labels, notes = alert["alert"], alert["labels"], alert["annotations"]
        if labels.get("severity") not in ("page", "ticket", "none"):
            problem(f"{name}: severity {labels.get('severity')}")
        for key in ("summary", "description"):
            if not notes.get(key):
                problem(f"{name}: no {key}")
        if not notes.get("runbook_url", "").endswith(f"RUNBOOK.md#{name.lower()}"):
            problem(f"{name}: runbook_url leads elsewhere")
        entry = entries.get(name)
        if entry is None:
            problem(f"RUNBOOK.md: no heading {name}")
            continue
        for part in PARTS:
            if f"**{part}.**" not in entry:
                problem(f"RUNBOOK.md: {name} has no part {part}")
    for name in entries.keys() - {alert["alert"] for alert in alerts}:
        problem(f"RUNBOOK.md: {name} is no alert")

    fires, silent = set(), set()
    for path in sorted(TESTS.glob("*.yaml")):
        text = path.read_text()
        for test in yaml.safe_load(text)["tests"]:
            for case in test["alert_rule_test"]:
                expected = case.get("exp_alerts", [])
                for one in expected:
                    window = one["exp_labels"].get("window")
                    fires.add(windowed(case["alertname"], window))
                if not expected:
                    silent.add(case["alertname"])
    for alert in alerts:
        name = windowed(alert["alert"], alert["labels"].get("window"))
        if name not in fires:
            problem(f"{name}: no test in which it fires")
        # What fires always has no case in which it is silent.
        if alert["alert"] not in silent and alert["expr"] != "vector(1)":
            problem(f"{alert['alert']}: no test in which it is silent")


def panels_of(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def check_dashboard(path, known, pages):
    text = path.read_text()
    dashboard = json.loads(text)
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    if variables != ["datasource", "namespace", "pod"]:
        problem(f"{path.name}: variables {variables}")
    if set(re.findall(r'"uid": "([^"]*)"', text)) != {"${datasource}", dashboard["uid"]}:
        problem(f"{path.name}: names a data source by its uid")
    identifiers = [panel["id"] for panel in panels_of(dashboard)]
    if len(identifiers) != len(set(identifiers)):
        problem(f"{path.name}: two panels have one id")
    taken = set()
    for panel in panels_of(dashboard):
        where = f"{path.name}: {panel['title']}"
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        if taken & cells or place["x"] + place["w"] > 24:
            problem(f"{where}: overlaps another, or leaves the grid")
        taken |= cells
        if panel["type"] == "row":
            continue
        if not panel["fieldConfig"]["defaults"].get("unit"):
            problem(f"{where}: no unit")
        if len(panel.get("description", "")) < 2:
            problem(f"{where}: no description")
        if not panel["targets"]:
            problem(f"{where}: asks nothing")
        for target in panel["targets"]:
            expression = target["expr"]
            check_names(where, expression, known)
            check_edges(where, expression, pages)
            if "histogram_quantile" in expression and " by (le" not in expression:
                problem(f"{where}: a quantile without le")
            # A lifetime's mean hides everything that is recent.
            for name in re.findall(r"\w+_(?:sum|count|total|bucket)\b(?=\{)", expression):
                rated = re.search(r"(rate|increase)\(" + name, expression)
                if not rated and panel["type"] != "stat":
                    problem(f"{where}: {name} without rate()")
    return dashboard["uid"]


def main():
    recorded = rules_of(MONITORING / "rules/recording.yaml")
    alerts = rules_of(MONITORING / "rules/alerts.yaml")
    known = exported(sys.argv[1:])
    if "castor_ready" not in known:
        sys.exit("check.py: the page is not a server's")
    known |= {rule["record"] for rule in recorded}
    for rule in recorded:
        check_edges(rule["record"], rule["expr"], sys.argv[1:])
    for rule in recorded + alerts:
        check_names(rule.get("record") or rule["alert"], rule["expr"], known)
    check_alerts(alerts)
    paths = sorted((MONITORING / "dashboards").glob("*.json"))
    identifiers = {check_dashboard(path, known, sys.argv[1:]) for path in paths}
    if len(identifiers) != len(paths) or len(paths) < 4:
        problem("dashboards: too few, or two with one uid")
    for text in problems:
        print(f"check_monitoring: {text}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"check_monitoring: {len(recorded)} recorded series, {len(alerts)} alerts, "
          f"{len(paths)} dashboards")


if __name__ == "__main__":
    main()
