#!/usr/bin/env python3
"""Writes dashboards/*.json, Grafana's dashboards of Castor.

  make_dashboards.py          writes them into dashboards/
  make_dashboards.py --check  fails if a file is not what this script writes

Each panel's query stands here once; Grafana's JSON around it is the same for all. To change a
dashboard, change this file: edits made in Grafana would be overwritten.
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"

# The choices at the top of a dashboard. Recorded series are a service's and have no pod.
OF = 'namespace=~"$namespace", pod=~"$pod"'
SERVICE = 'namespace=~"$namespace"'
COMPUTING = 'method=~"(attend|encode)(_stream)?"'
RATE = "[$__rate_interval]"

GREEN, YELLOW, RED = "green", "#EAB839", "red"


def quantile(q, bucket, by="", labels=""):
    """A quantile over pods: buckets add up, quantiles do not."""
    grouping = "le" + (", " + by if by else "")
    return (f"histogram_quantile({q}, sum by ({grouping}) "
            f"(rate({bucket}_bucket{{{OF}{labels}}}{RATE})))")


def rate(counter, by="", labels=""):
    return f"sum by ({by}) (rate({counter}{{{OF}{labels}}}{RATE}))"


def total(gauge, by="", labels=""):
    return f"sum by ({by}) ({gauge}{{{OF}{labels}}})"


class Panel:
    def __init__(self, title, unit, good, *queries, width=8, kind="timeseries", height=8,
                 limits=(), stacked=False, most=None, decimals=None):
        """`good`: how the panel should look. `queries`: pairs of an
        expression and a legend. `limits`: pairs of a value and the colour from there on."""
        self.title, self.unit, self.good, self.queries = title, unit, good, queries
        self.width, self.height, self.kind = width, height, kind
        self.limits, self.stacked, self.most, self.decimals = limits, stacked, most, decimals

    def json(self, number, x, y):
        datasource = {"type": "prometheus", "uid": "${datasource}"}
        steps = [{"color": GREEN, "value": None}]
        steps += [{"color": color, "value": value} for value, color in self.limits]
        defaults = {"unit": self.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.most is not None:
            defaults["max"] = self.most
        if self.decimals is not None:
            defaults["decimals"] = self.decimals
        if self.kind == "stat":
            defaults["color"] = {"mode": "thresholds"}
            options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                       "colorMode": "value", "graphMode": "area", "textMode": "auto"}
        else:
            defaults["color"] = {"mode": "palette-classic"}
            defaults["custom"] = {
                "drawStyle": "line", "lineWidth": 1, "showPoints": "never", "spanNulls": False,
                "fillOpacity": 30 if self.stacked else 8,
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
                "thresholdsStyle": {"mode": "dashed" if self.limits else "off"}}
            options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
        targets = [{"refId": chr(ord("A") + i), "datasource": datasource, "expr": expression,
                    "legendFormat": legend, "range": True, "editorMode": "code"}
                   for i, (expression, legend) in enumerate(self.queries)]
        return {"id": number, "type": self.kind, "title": self.title, "description": self.good,
                "datasource": datasource, "targets": targets, "options": options,
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y}}


class Row:
    def __init__(self, title, *panels, collapsed=False):
        self.title, self.panels, self.collapsed = title, panels, collapsed


def variable(name, label, query):
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    return {"type": "query", "name": name, "label": label, "datasource": datasource,
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}, "options": [], "regex": "",
            "hide": 0}


def dashboard(name, title, about, rows):
    panels, number, y = [], 0, 0
    for row in rows:
        number += 1
        head = {"id": number, "type": "row", "title": row.title, "collapsed": row.collapsed,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []}
        panels.append(head)
        y += 1
        below, x, tallest = [], 0, 0
        for panel in row.panels:
            if x + panel.width > 24:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            below.append(panel.json(number, x, y))
            x += panel.width
            tallest = max(tallest, panel.height)
        y += tallest
        if row.collapsed:
            head["panels"] = below
        else:
            panels += below
    return {
        "uid": f"castor-{name}", "title": f"Castor / {title}", "description": about,
        "tags": ["castor"], "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1,
        "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["castor"], "title": "Castor", "asDropdown": True,
                   "includeVars": True, "keepTime": True, "icon": "external link", "url": "",
                   "targetBlank": False, "tooltip": ""}],
        "annotations": {"list": [{
            "name": "Alerts", "enable": True, "hide": False, "iconColor": RED,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "expr": 'ALERTS{alertname=~"Castor.*", alertstate="firing", severity!="none"}',
            "titleFormat": "{{alertname}}", "textFormat": "{{pod}}", "step": "60s"}]},
        "templating": {"list": [
            {"type": "datasource", "name": "datasource", "label": "Data source",
             "query": "prometheus", "refresh": 1, "hide": 0, "multi": False, "includeAll": False,
             "current": {}, "options": [], "regex": ""},
            variable("namespace", "Namespace", "label_values(castor_build_info, namespace)"),
            variable("pod", "Pod", f"label_values(castor_build_info{{{SERVICE}}}, pod)")]},
        "panels": panels}


def stat(title, unit, good, query, limits=(), **more):
    return Panel(title, unit, good, (query, ""), width=4, height=4, kind="stat", limits=limits,
                 **more)


def latencies(method, by):
    bucket, labels = "castor_request_duration_seconds", f', method="{method}"'
    return [(quantile(q, bucket, by, labels), f"{{{{{by}}}}} {name}")
            for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))]


def burn(series, objective, legend=""):
    return [(f"castor:{series}:ratio_rate{window}{{{SERVICE}}} "
             f"/ scalar(castor:objective:{objective})", f"{legend}{window}")
            for window in ("5m", "1h", "6h")]


BURN = ((1, YELLOW), (14.4, RED))

OVERVIEW = [
    Row("Now",
        stat("Ready", "short", "Servers that take requests. As many as there should be.",
             total("castor_ready"), decimals=0),
        stat("Requests", "reqps", "Calls that compute, of all codes.",
             rate("castor_requests_total", labels=f", {COMPUTING}")),
        stat("Errors", "percentunit", "The server's faults among the requests of five minutes. 0.",
             f"max(castor:request_errors:ratio_rate5m{{{SERVICE}}})",
             ((0.0005, YELLOW), (0.001, RED)), decimals=2),
        stat("Refused", "percentunit", "For lack of room, in five minutes. 0 except in bursts.",
             f"max(castor:request_refusals:ratio_rate5m{{{SERVICE}}})",
             ((0.01, YELLOW), (0.06, RED)), decimals=1),
        stat("Saturation", "percentunit", "Of the fullest server, in its scarcest budget. Below "
             "80 %; at 100 % it refuses.", f"max(castor_saturation_ratio{{{OF}}})",
             ((0.6, YELLOW), (0.8, RED)), decimals=0),
        stat("Alerts", "short", "That fire now. 0.",
             'count(ALERTS{alertname=~"Castor.*", alertstate="firing", severity!="none"}) '
             "or vector(0)", ((1, RED),), decimals=0)),
    Row("Objectives",
        Panel("Error budget: burn rate", "suffix:x", "How many times as fast as the objective allows the "
              "budget is used. Below 1. An alert comes at 14.4 over an hour, or 6 over six.",
              *burn("request_errors", "error_ratio"), limits=BURN),
        Panel("Latency budget: burn rate", "suffix:x", "The same, of requests that take longer than "
              "their method's objective.", *burn("slow_requests", "slow_ratio", "{{method}} "),
              limits=BURN),
        Panel("Refusal budget: burn rate", "suffix:x", "The same, of requests refused for lack of room. "
              "An alert comes at 6 over an hour.", *burn("request_refusals", "refused_ratio"),
              limits=((1, YELLOW), (6, RED)))),
    Row("Traffic",
        Panel("Requests by method", "reqps", "Calls that compute; of encoders by model.",
              (rate("castor_requests_total", "method, model", f", {COMPUTING}"),
               "{{method}} {{model}}"),
              stacked=True),
        Panel("Not OK, by code", "reqps", "Of encoders by model. INVALID_ARGUMENT and the like "
              "are callers' mistakes, RESOURCE_EXHAUSTED is lack of room, DEADLINE_EXCEEDED "
              "callers' patience. UNKNOWN, INTERNAL and UNAVAILABLE count as errors: none.",
              (rate("castor_requests_total", "code, model", f', {COMPUTING}, code!="OK"') + " > 0",
               "{{code}} {{model}}")),
        Panel("Refused by the engine, by reason", "reqps", "QUEUE_FULL: add replicas, or let "
              "callers wait. TOO_LARGE: never fits. OUT_OF_MEMORY: see Castor / Process.",
              (rate("castor_rejected_total", "reason") + " > 0", "{{reason}}")),
        Panel("Latency of attend", "s", "From a call's arrival to its end, on the server, of calls "
              "answered OK.", *latencies("attend", "kernel")),
        Panel("Latency of encode", "s", "The same, by model.", *latencies("encode", "model")),
        Panel("Bytes of messages", "Bps", "What the network carries.",
              (rate("castor_received_bytes_total", "method"), "{{method}} in"),
              (rate("castor_sent_bytes_total", "method"), "{{method}} out"))),
    Row("Load",
        Panel("Saturation", "percentunit", "Share in use of the scarcest budget. Pods should be "
              "alike: one that is not gets more than its share of calls.",
              (f"castor_saturation_ratio{{{OF}}}", "{{pod}}"), most=1,
              limits=((0.8, RED),)),
        Panel("Waiting requests", "short", "Requests that wait for a batch. Near 0 most of the "
              "time: a queue that stays is latency.",
              (f"castor_queue_depth{{{OF}}}", "{{pod}}")),
        Panel("Oldest request", "s", "Age of the oldest request that is not answered. It saws; "
              "one that only climbs is stuck.",
              (f"castor_oldest_request_seconds{{{OF}}}", "{{pod}}"), limits=((10, RED),))),
]

WORK = "operation, kernel, model"  # attention has a kernel, encoders have a model
NAMED = "{{operation}} {{model}} {{kernel}}"
COMPUTE = ', phase="compute"'
STAGES = "castor_stage_duration_seconds"
OFF = (f'sum by ({WORK}) (rate(castor_prediction_ratio_bucket{{{OF}, le="%s"}}{RATE}))')

KERNELS = [
    Row("Work",
        Panel("Requests answered", "reqps", "By the kernel that computed them, and the model.",
              (rate("castor_engine_requests_total", WORK), NAMED), stacked=True),
        Panel("Tokens computed", "short", "Per second.",
              (rate("castor_tokens_total", WORK), NAMED), stacked=True),
        Panel("Share of the device", "percentunit", "Seconds of computing per second. "
              "The sum over a pod is how busy its device is.",
              (rate(STAGES + "_sum", WORK, COMPUTE), NAMED), stacked=True),
        Panel("Compute time of a batch, p50", "s", "Steady at a steady load: a rise without one "
              "means a slower device, or a neighbour.",
              (quantile(0.5, STAGES, WORK, COMPUTE), NAMED)),
        Panel("Compute time of a batch, p95", "s", "The long requests, and large batches.",
              (quantile(0.95, STAGES, WORK, COMPUTE), NAMED)),
        Panel("Other stages, p95", "s", "Tokenizing per request; copies per batch. On a CPU "
              "nothing is copied.",
              (quantile(0.95, STAGES, "operation, phase", ', phase!="compute"'),
               "{{operation}} {{phase}}"))),
    Row("Batches",
        Panel("Requests in a batch, p50 and p90", "short", "More under load: that is how "
              "throughput grows. 1 on an idle server.",
              (quantile(0.5, "castor_batch_requests", "operation"), "{{operation}} p50"),
              (quantile(0.9, "castor_batch_requests", "operation"), "{{operation}} p90")),
        Panel("Tokens in a batch, p50 and p90", "short", "Up to --max-batch-tokens.",
              (quantile(0.5, "castor_batch_tokens", "operation"), "{{operation}} p50"),
              (quantile(0.9, "castor_batch_tokens", "operation"), "{{operation}} p90")),
        Panel("Padding", "percentunit", "Tokens computed that no request has. 0: batches are "
              "packed.",
              (rate("castor_padded_tokens_total", "operation") + " / "
               + f"({rate('castor_tokens_total', 'operation')} > 0)", "{{operation}}"), most=1)),
    Row("Fidelity",
        Panel("Relative error, p50 and p90", "percentunit", "Estimated on sampled rows, of probed "
              "requests (--fidelity-share, or a bound in the request). p90 below the objective.",
              (quantile(0.5, "castor_attention_relative_error", "kernel"), "{{kernel}} p50"),
              (quantile(0.9, "castor_attention_relative_error", "kernel"), "{{kernel}} p90")),
        Panel("Probes", "reqps", "How many measurements the errors stand on. Few: the quantiles "
              "say little.",
              (rate("castor_attention_relative_error_count", "kernel"), "{{kernel}}")),
        Panel("Time of a probe, p95", "s", "Per batch. Small against the compute time, or the "
              "share of probed requests is too high.",
              (quantile(0.95, "castor_fidelity_probe_duration_seconds"), "probe")),
        Panel("Automatic choice: kernels", "reqps", "Which kernels answer requests that leave the "
              "choice to the server.",
              (rate("castor_automatic_requests_total", "kernel"), "{{kernel}}"), stacked=True),
        Panel("Automatic choice: tried in vain", "percentunit", "Runs whose error was larger than "
              "the request allows, which a more exact kernel then repeated. Wasted time.",
              (rate("castor_automatic_rejected_total", "kernel") + " / ("
               + rate("castor_automatic_rejected_total", "kernel") + " + "
               + rate("castor_automatic_requests_total", "kernel") + " > 0)", "{{kernel}}"),
              most=1, limits=((0.3, YELLOW),)),
        Panel("Predictions off", "percentunit", "Batches that took less than half or more than "
              "twice of what was predicted. Admission and scheduling go by predictions.",
              ("1 - (" + OFF % "2.0" + " - " + OFF % "0.5" + ") / ("
               + rate("castor_prediction_ratio_count", WORK) + " > 0)", NAMED),
              most=1, limits=((0.5, YELLOW),))),
]


def share(gauge, unit):
    return (f'{gauge}{{{OF}}} / on (job, instance) group_left () '
            f'castor_queue_limit{{{OF}, unit="{unit}"}}')


SCHEDULER = [
    Row("Queue",
        Panel("Predicted wait", "s", "Time on the device of what waits. Beyond the limit requests "
              "are refused. Scale on this.",
              (f"castor_queued_seconds{{{OF}}}", "{{pod}}"),
              (f"max(castor_queued_seconds_limit{{{OF}}})", "limit")),
        Panel("Waiting and in flight", "short", "Requests that wait for a batch, and all that are "
              "admitted and not answered.",
              (total("castor_queue_depth"), "waiting"),
              (total("castor_inflight_requests"), "in flight")),
        Panel("Oldest request", "s", "It saws; one that only climbs is stuck.",
              (f"castor_oldest_request_seconds{{{OF}}}", "{{pod}}"), limits=((10, RED),)),
        Panel("Budgets in use", "percentunit", "The fullest pod's. Requests are refused by the "
              "budget that is nearest to 100 %.",
              (f"max({share('castor_inflight_requests', 'requests')})", "requests"),
              (f"max({share('castor_inflight_tokens', 'tokens')})", "tokens"),
              (f"max({share('castor_inflight_bytes', 'bytes')})", "bytes"),
              (f"max(castor_queued_seconds{{{OF}}} / castor_queued_seconds_limit{{{OF}}})",
               "predicted wait"), most=1, limits=((0.8, RED),)),
        Panel("Device memory in use", "percentunit", "Predicted, of the bound, weights included. "
              "Full is no fault: batches wait for each other.",
              (f"castor_device_memory_predicted_bytes{{{OF}}} / "
               f"castor_device_memory_limit_bytes{{{OF}}}", "{{pod}}"), most=1),
        Panel("Device busy", "percentunit", "Seconds of computing per second. Near 100 % with a "
              "short queue is a server well used.",
              (rate(STAGES + "_sum", "pod", COMPUTE), "{{pod}}"))),
    Row("Waiting",
        Panel("Wait by priority, p50", "s", "Between requests for one kernel, high priority waits least. "
              "The histogram ends at 1.6 s.",
              (quantile(0.5, "castor_wait_duration_seconds", "priority"), "{{priority}}")),
        Panel("Wait by priority, p99", "s", "The same, of those that waited longest.",
              (quantile(0.99, "castor_wait_duration_seconds", "priority"), "{{priority}}")),
        Panel("Wait by kernel and model, p95", "s", "One that waits longer than others is asked for in "
              "larger requests.",
              (quantile(0.95, "castor_queue_duration_seconds", WORK), NAMED))),
    Row("Fairness and waste",
        Panel("Tenants' time on the device", "percentunit", "Seconds per second. When it is full, "
              "shares are by weight.",
              (rate("castor_tenant_compute_seconds_total", "tenant"), "{{tenant}} "),
              stacked=True),
        Panel("Preemptions", "ops", "Batches that preempted a running one: short requests "
              "among long ones.", (rate("castor_preemptions_total"), "preemptions")),
        Panel("Deadlines missed and requests cancelled", "reqps", "Queued: dropped without "
              "computing. Running: computed in vain.",
              (rate("castor_deadline_misses_total"), "deadline missed"),
              (rate("castor_cancelled_total", "stage"), "cancelled or expired, {{stage}}")),
        Panel("Wasted time of the device", "percentunit", "On requests that were not answered, or "
              "too late. Near 0; else callers' deadlines are too short for the load.",
              (rate("castor_wasted_compute_seconds_total"), "wasted"), limits=((0.1, YELLOW),)),
        Panel("Refused by reason", "reqps", "What admission turned away.",
              (rate("castor_rejected_total", "reason") + " > 0", "{{reason}}")),
        Panel("Calls in flight", "short", "Begun and not ended, messages in transit included.",
              (total("castor_inflight_calls", "method", f", {COMPUTING}"), "{{method}}"),
              stacked=True)),
]

PROCESS = [
    Row("Memory",
        Panel("Resident", "percentunit", "Of what the process may use. Flat under a steady load; "
              "beyond 90 % an alert comes, beyond 100 % the kernel ends it.",
              (f"process_resident_memory_bytes{{{OF}}} / castor_memory_limit_bytes{{{OF}}}",
               "{{pod}}"), most=1, limits=((0.9, RED),)),
        Panel("Who holds it", "bytes", "Heap and resident follow the load. The heap keeps free "
              "memory for the next messages; that is no leak. On a CPU staging memory is of it.",
              (total("castor_heap_used_bytes"), "heap, used"),
              (total("castor_heap_free_bytes"), "heap, free"),
              (f"sum (process_resident_memory_bytes{{{OF}}} and on (job, instance) castor_ready)",
               "resident")),
        Panel("Weights by model", "bytes", "Constant.",
              (total("castor_model_weights_bytes", "model, device"), "{{model}} on {{device}}"),
              stacked=True),
        Panel("Running batches", "bytes", "Predicted: activations of encoders' layers, workspace "
              "of kernels. The most so far shows what a scrape misses.",
              (total("castor_run_memory_bytes", "kind"), "{{kind}}"),
              (f"max by (kind) (castor_run_memory_peak_bytes{{{OF}}})", "{{kind}}, most of a pod")),
        Panel("Staging", "bytes", "In use: tensors of requests and answers. Cached: kept for the "
              "next, up to --max-kept-bytes.",
              (total("castor_staging_memory_bytes", "state"), "{{state}}"), stacked=True),
        Panel("Messages in gRPC's hands", "bytes", "Answers not taken yet. Climbing: slow networks or "
              "slow callers.", (total("castor_message_bytes", "direction"), "{{direction}}"))),
    Row("Process",
        Panel("Processors", "suffix: cores", "User and system time. As many cores as it may use, at most.",
              (f"rate(process_cpu_seconds_total{{{OF}}}{RATE}) and on (job, instance) "
               "castor_ready", "{{pod}}")),
        Panel("Descriptors", "percentunit", "Of ulimit -n. Each connection takes two.",
              (f"process_open_fds{{{OF}}} / process_max_fds{{{OF}}} and on (job, instance) "
               "castor_ready", "{{pod}}"), most=1, limits=((0.8, RED),)),
        Panel("Up for", "s", "A saw has restarts for teeth.",
              (f"time() - process_start_time_seconds{{{OF}}} and on (job, instance) castor_ready",
               "{{pod}}"))),
    Row("Connections and callers",
        Panel("Connections", "short", "To the gRPC ports. Even over pods, or balancing is not by "
              "call.", (f"castor_connections{{{OF}}}", "{{pod}}")),
        Panel("Connections turned away", "cps", "total, host: too many. descriptors: raise "
              "ulimit -n. no_call: no TLS, or an old version.",
              (rate("castor_connections_refused_total", "cause"), "{{cause}}"),
              (rate("castor_connections_expelled_total"), "expelled")),
        Panel("Callers refused", "reqps", "By reason. unknown_token after a rotation: somebody has "
              "the old one.", (rate("castor_callers_refused_total", "reason"), "{{reason}}")),
        Panel("Answers lost, calls overdue", "reqps", "Callers that went away, and messages that "
              "did not come in time.",
              (rate("castor_answers_lost_total", "method"), "{{method}} answers lost"),
              (rate("castor_calls_overdue_total"), "calls overdue")),
        Panel("Certificates end in", "s", "Renewed long before the end.",
              (f"min by (certificate) (castor_certificate_expiry_timestamp_seconds{{{OF}}}) "
               "- time()", "{{certificate}}")),
        Panel("Log lines lost", "ops", "0.",
              (rate("castor_log_lines_dropped_total"), "log lines"))),
    Row("Device",
        stat("Healthy", "short", "Devices without a fault. All of them.",
             total("castor_device_healthy"), decimals=0),
        stat("Faults", "short", "Errors of devices since they started. 0.",
             total("castor_engine_faults_total"), ((1, RED),), decimals=0),
        stat("Stalled", "short", "Engines that have work and make no progress. 0.",
             total("castor_engine_stalled"), ((1, RED),), decimals=0)),
    Row("GPU (on a CPU: weights alone)",
        Panel("Memory", "bytes", "In tensors; held by the caching allocator, which keeps what it "
              "once had; the bound.",
              (total("castor_device_memory_allocated_bytes"), "in tensors"),
              (total("castor_device_memory_reserved_bytes"), "held"),
              (total("castor_device_memory_peak_bytes"), "most in tensors"),
              (total("castor_device_memory_limit_bytes"), "bound"), width=12),
        Panel("Held and not used", "percentunit", "A share of the memory held. Fragments lie between "
              "tensors and serve only what fits; more than 30 % for long is fragmentation.",
              ("1 - " + total("castor_device_memory_allocated_bytes", "pod") + " / ("
               + total("castor_device_memory_reserved_bytes", "pod") + " > 0)", "{{pod}} unused"),
              (total("castor_device_memory_split_bytes", "pod") + " / ("
               + total("castor_device_memory_reserved_bytes", "pod") + " > 0)",
               "{{pod}} fragments"), width=12, most=1, limits=((0.3, YELLOW),)),
        collapsed=True),
]

DASHBOARDS = {
    "overview": ("Overview", "Is the service well? Objectives, traffic, load.", OVERVIEW),
    "kernels": ("Kernels and fidelity", "What computes, how fast, in which batches, how exactly.",
                KERNELS),
    "scheduler": ("Scheduler", "Who waits for what, who gets the device, what is wasted.",
                  SCHEDULER),
    "process": ("Process and device", "Memory by holder, connections, certificates, the device.",
                PROCESS),
}


def main():
    wrong = []
    for name, (title, about, rows) in DASHBOARDS.items():
        text = json.dumps(dashboard(name, title, about, rows), indent=2) + "\n"
        path = FOLDER / f"{name}.json"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(path.name)
    if wrong:
        sys.exit(f"make_dashboards: not what this script writes: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
