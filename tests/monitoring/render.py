#!/usr/bin/env python3
"""Draws Grafana's dashboards without Grafana: asks a Prometheus what each panel asks, and writes a
page for each dashboard, with the panels where Grafana would put them.

  render.py --prometheus http://127.0.0.1:9090 --out FOLDER [--minutes 5] [--dashboards FOLDER]
            [--unused]

Fails if a query has no data; with --unused only if one of its series has a value other than 0, since
a server without models or GPU has nothing to draw of them. Rows that are collapsed are drawn open.
"""

import argparse
import html
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

DASHBOARDS = pathlib.Path(__file__).resolve().parents[2] / "deploy/monitoring/dashboards"

# Grafana's grid: 24 columns; a unit of height is 30 pixels and 8 between.
COLUMN, UNIT, GAP = 60, 30, 8
COLORS = ["#73BF69", "#F2CC0C", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#8AB8FF", "#96D98D",
          "#FFB357", "#CA95E5", "#37872D", "#E0B400", "#1F60C4", "#FA6400", "#C4162A", "#8F3BB8"]
NAMED = {"green": "#73BF69", "red": "#F2495C"}


class Prometheus:
    def __init__(self, address, minutes, step):
        self.address, self.step = address, step
        self.end = time.time()
        self.start = self.end - 60 * minutes

    def ask(self, expression):
        """Series as pairs of labels and [(time, value)], without NaN."""
        query = urllib.parse.urlencode({"query": expression, "start": self.start, "end": self.end,
                                        "step": self.step})
        with urllib.request.urlopen(f"{self.address}/api/v1/query_range?{query}") as answer:
            result = json.load(answer)["data"]["result"]
        series = []
        for one in result:
            points = [(float(at), float(value)) for at, value in one["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                series.append((one["metric"], points))
        return series


def scaled(value, unit, decimals=None):
    """A number as Grafana prints it."""
    def number(x, suffix=""):
        if decimals is not None:
            return f"{x:.{decimals}f}{suffix}"
        digits = 0 if abs(x) >= 100 or x == int(x) else 1 if abs(x) >= 10 else 2
        text = f"{x:.{digits}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text) + suffix

    if unit == "percentunit":
        return number(value * 100, " %")
    if unit.startswith("suffix:"):
        return number(value, unit[7:])
    if unit in ("bytes", "Bps"):
        tail = "/s" if unit == "Bps" else ""
        for name in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or name == "GiB":
                return number(value, f" {name}{tail}")
            value /= 1024
    if unit == "s":
        for factor, name, least in ((86400, "d", 2 * 86400), (3600, "h", 7200), (60, "min", 120),
                                    (1, "s", 1), (1e-3, "ms", 1e-3), (1e-6, "µs", 0)):
            if abs(value) >= least:
                return number(value / factor, f" {name}") if value else "0 s"
    tail = {"reqps": " req/s", "ops": " ops/s", "cps": " c/s"}.get(unit, "")
    for factor, name in ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K")):
        if abs(value) >= factor * 10:
            return number(value / factor, name + tail)
    return number(value, tail)


def legend_of(pattern, labels):
    text = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), pattern)
    return text.strip() or "(none)"


def round_up(value):
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def stacked(lines):
    """The upper and lower edge of each."""
    base, result = {}, []
    for name, points in lines:
        lower = [(at, base.get(at, 0)) for at, _ in points]
        upper = [(at, base.get(at, 0) + value) for at, value in points]
        base.update(upper)
        result.append((name, upper, lower))
    return result


def plot(panel, lines, width, height, prometheus):
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults["custom"]
    legend_rows = math.ceil(sum(len(name) + 4 for name, _ in lines) * 6.2 / (width - 20)) or 1
    legend_rows = min(legend_rows, 3)
    left, right, top = 62, 10, 6
    bottom = 20 + 15 * legend_rows
    inner_w, inner_h = width - left - right, height - top - bottom
    stacks = custom["stacking"]["mode"] == "normal"
    areas = stacked(lines) if stacks else [(name, points, None) for name, points in lines]
    highest = max((value for _, points, _ in areas for _, value in points), default=0)
    limits = [step for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    ceiling = min(defaults.get("max", math.inf), round_up(highest * 1.02))
    if unit == "bytes" and highest > 0:  # round figures of binary units
        scale = 1024 ** min(3, int(math.log(highest, 1024)))
        ceiling = round_up(highest * 1.02 / scale) * scale

    def x(at):
        return left + (at - prometheus.start) / (prometheus.end - prometheus.start) * inner_w

    def y(value):
        return top + inner_h * (1 - min(value, ceiling) / ceiling)

    out = [f'<svg width="{width}" height="{height}">']
    for i in range(5):
        value = ceiling * i / 4
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(value):.1f}" '
                   f'y2="{y(value):.1f}"/><text class="tick" text-anchor="end" x="{left - 5}" '
                   f'y="{y(value) + 4:.1f}">{scaled(value, unit)}</text>')
    first = math.ceil(prometheus.start / 60) * 60
    for at in range(first, int(prometheus.end), 60):
        text = time.strftime("%H:%M", time.gmtime(at))
        out.append(f'<line class="grid" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top}" '
                   f'y2="{top + inner_h}"/><text class="tick" text-anchor="middle" '
                   f'x="{x(at):.1f}" y="{top + inner_h + 14}">{text}</text>')
    for i, (_, points, lower) in enumerate(areas):
        color = COLORS[i % len(COLORS)]
        # A gap of more than three steps is one in the data.
        pieces, piece = [], []
        for point in points:
            if piece and point[0] - piece[-1][0] > 3.5 * prometheus.step:
                pieces.append(piece)
                piece = []
            piece.append(point)
        pieces.append(piece)
        for piece in pieces:
            path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in piece)
            if len(piece) == 1:
                at, value = piece[0]
                out.append(f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="1.5" fill="{color}"/>')
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}"/>')
            if lower is not None:
                under = dict(lower)
                back = " ".join(f"{x(at):.1f},{y(under[at]):.1f}" for at, _ in reversed(piece))
                out.append(f'<polygon points="{path} {back}" fill="{color}" fill-opacity="0.3"/>')
    for step in limits:
        if step["value"] < ceiling:
            color = NAMED.get(step["color"], step["color"])
            out.append(f'<line stroke="{color}" stroke-dasharray="6 4" x1="{left}" '
                       f'x2="{width - right}" y1="{y(step["value"]):.1f}" '
                       f'y2="{y(step["value"]):.1f}"/>')
    across, row = 8, 0
    for i, (name, _) in enumerate(lines):
        long = (len(name) + 4) * 6.2
        if across + long > width - 10 and across > 8:
            across, row = 8, row + 1
        if row >= legend_rows:
            break
        at = height - 15 * (legend_rows - row) + 6
        out.append(f'<rect x="{across}" y="{at - 3}" width="12" height="3" '
                   f'fill="{COLORS[i % len(COLORS)]}"/><text class="tick" x="{across + 16}" '
                   f'y="{at + 2}">{html.escape(name)}</text>')
        across += long
    out.append("</svg>")
    return "".join(out)


def stat(panel, lines, width, height):
    defaults = panel["fieldConfig"]["defaults"]
    value = lines[0][1][-1][1] if lines else math.nan
    color = "#73BF69"
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = NAMED.get(step["color"], step["color"])
    text = scaled(value, defaults["unit"], defaults.get("decimals")) if lines else "No data"
    return (f'<div class="stat" style="color:{color};width:{width}px;height:{height}px">'
            f"{html.escape(text)}</div>")


def panels_of(dashboard):
    """Rows and panels, in places that leave room for rows that are drawn open."""
    shift = 0
    for panel in dashboard["panels"]:
        place = dict(panel["gridPos"])
        place["y"] += shift
        yield panel, place
        below = panel.get("panels", [])
        for inner in below:
            place = dict(inner["gridPos"])
            place["y"] += shift
            yield inner, place
        if below:
            head = panel["gridPos"]["y"] + 1
            shift += max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in below) - head


def has_values(expression, prometheus):
    """Whether a series that `expression` reads has had a value other than 0."""
    return any(prometheus.ask(f"max({selector}) != 0")
               for selector in re.findall(r"\bcastor_\w+(?:\{[^}]*\})?", expression))


def draw(path, prometheus, empty, unused):
    dashboard = json.loads(path.read_text())
    boxes, depth, asked = [], 0, 0
    for panel, place in panels_of(dashboard):
        left, top = place["x"] * COLUMN, place["y"] * (UNIT + GAP)
        width, height = place["w"] * COLUMN - GAP, place["h"] * (UNIT + GAP) - GAP
        depth = max(depth, top + height)
        at = f"left:{left}px;top:{top}px;width:{width}px;height:{height}px"
        title = html.escape(panel["title"])
        if panel["type"] == "row":
            boxes.append(f'<div class="row" style="{at}">{title}</div>')
            continue
        lines = []
        for target in panel["targets"]:
            asked += 1
            expression = target["expr"]
            for name, value in (("$namespace", ".*"), ("$pod", ".*"),
                                ("$__rate_interval", f"{4 * prometheus.step}s")):
                expression = expression.replace(name, value)
            series = prometheus.ask(expression)
            if not series and not (unused and not has_values(expression, prometheus)):
                empty.append(f"{path.name}: {panel['title']}: {expression}")
            lines += [(legend_of(target["legendFormat"], labels), points)
                      for labels, points in series]
        body = (stat(panel, lines, width, height - 26) if panel["type"] == "stat"
                else plot(panel, lines, width, height - 26, prometheus))
        hint = html.escape(panel["description"])
        boxes.append(f'<div class="panel" style="{at}" title="{hint}"><h3>{title}</h3>{body}</div>')
    page = f"""<!DOCTYPE html><html lang="en"><meta charset="utf-8">
<title>{html.escape(dashboard['title'])}</title><style>
body {{ background:#111217; color:#ccccdc; font:12px sans-serif; margin:16px; }}
h1 {{ font-size:18px; font-weight:500; margin:0 0 12px; }}
.all {{ position:relative; width:{24 * COLUMN}px; height:{depth}px; }}
.panel, .row {{ position:absolute; box-sizing:border-box; }}
.panel {{ background:#181b1f; border:1px solid #2b2e35; border-radius:2px; }}
.row {{ font-size:15px; padding-top:10px; }}
h3 {{ font-size:12px; font-weight:500; margin:6px 8px 4px; height:16px; }}
.stat {{ font-size:34px; display:flex; align-items:center; justify-content:center; }}
.tick {{ fill:#9a9caf; font:10px sans-serif; }}
.grid {{ stroke:#24272d; }} polyline {{ stroke-width:1.3; }} svg {{ display:block; }}
</style><h1>{html.escape(dashboard['title'])}</h1><div class="all">{''.join(boxes)}</div></html>
"""
    return page, depth + 80, asked


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--dashboards", type=pathlib.Path, default=DASHBOARDS)
    parser.add_argument("--step", type=int, default=5, help="seconds")
    parser.add_argument("--unused", action="store_true", help="see above")
    arguments = parser.parse_args()
    prometheus = Prometheus(arguments.prometheus, arguments.minutes, arguments.step)
    empty = []
    for path in sorted(arguments.dashboards.glob("*.json")):
        page, depth, asked = draw(path, prometheus, empty, arguments.unused)
        (arguments.out / f"{path.stem}.html").write_text(page)
        (arguments.out / f"{path.stem}.height").write_text(str(depth))
        print(f"{path.stem}: {asked} queries")
    for text in empty:
        print(f"no data: {text}", file=sys.stderr)
    sys.exit(1 if empty else 0)


if __name__ == "__main__":
    main()
