// What a pointer adds to the report, which is complete without: values under the pointer, and
// classes that can be hidden where curves lie over each other.
"use strict";
(() => {
  const source = document.getElementById("chart-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);

  const three = (value) => value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  const duration = (us) =>
    us < 999.5 ? us + " \u00b5s" : us < 999500 ? three(us / 1e3) + " ms" : three(us / 1e6) + " s";
  const clock = (seconds) =>
    Math.floor(seconds / 60) + ":" + String(Math.floor(seconds % 60)).padStart(2, "0");
  const show = (value, unit) => (unit === "us" ? duration(value) : value + unit);

  const timeText = (panel) => (share) => {
    const index = Math.floor((share * data.seconds) / data.step);
    const parts = [];
    for (const series of data.panels[panel]) {
      const value = series.values[Math.min(index, series.values.length - 1)];
      // Outcomes that did not happen are not worth their room.
      if (value === null || (series.unit === "/s" && value === 0)) continue;
      parts.push(series.name + " " + show(value, series.unit));
    }
    return [clock(index * data.step), ...parts].join(" \u00b7 ");
  };

  const percentileText = (share) => {
    const odds = Math.exp(share * Math.log(data.greatest_count));
    const parts = [(100 * (1 - 1 / odds)).toPrecision(5) + "%"];
    data.curves.forEach((curve, i) => {
      const last = curve.intended.length - 1;
      if (last < 1 || hidden.has("c" + i)) return;
      const index = Math.round((Math.log(odds) / Math.log(Math.max(2, curve.count))) * last);
      if (index > last) return;
      parts.push(curve.name + " " + duration(curve.intended[index]) + ", from sending " +
                 duration(curve.sending[index]));
    });
    return parts.join(" \u00b7 ");
  };

  const hidden = new Set();

  // A line under the pointer, and a text below the chart.
  const follow = (figure, textAt) => {
    const readout = document.createElement("p");
    readout.className = "readout";
    figure.querySelectorAll("svg.chart").forEach((chart) => {
      const box = chart.viewBox.baseVal;
      const left = Number(chart.dataset.left), right = Number(chart.dataset.right);
      const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cross.setAttribute("class", "cross hidden");
      chart.append(cross);
      chart.after(readout);
      chart.addEventListener("pointermove", (event) => {
        const frame = chart.getBoundingClientRect();
        const x = ((event.clientX - frame.left) / frame.width) * box.width;
        const inside = x >= left && x <= right;
        cross.classList.toggle("hidden", !inside);
        readout.textContent = inside ? textAt((x - left) / (right - left)) : "";
        if (inside) cross.setAttribute("d", "M" + x + " 10V" + (box.height - 22));
      });
      chart.addEventListener("pointerleave", () => {
        cross.classList.add("hidden");
        readout.textContent = "";
      });
    });
  };

  document.querySelectorAll("figure[data-panel]").forEach((figure) => {
    if (data.panels[figure.dataset.panel]) follow(figure, timeText(figure.dataset.panel));
  });

  const percentiles = document.getElementById("percentile-figure");
  if (!percentiles) return;
  follow(percentiles, percentileText);
  percentiles.querySelectorAll(".key").forEach((key) => {
    const group = key.dataset.toggles;
    if (!group) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "key";
    button.setAttribute("aria-pressed", "true");
    button.append(...key.childNodes);
    button.addEventListener("click", () => {
      const hide = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!hide));
      if (hide) hidden.add(group); else hidden.delete(group);
      percentiles.querySelectorAll("g." + group).forEach((g) => g.classList.toggle("hidden", hide));
    });
    key.replaceWith(button);
  });
})();
