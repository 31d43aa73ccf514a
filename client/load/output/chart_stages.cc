// Where the mean time went.
#include <algorithm>
#include <string>
#include <vector>

#include "client/load/output/chart.h"
#include "client/load/output/figures.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

struct Part {
  std::string name, look;
  double mean = 0;  // ns
};

// From the intended time to the answer. What the server's stages do not account for is "other".
std::vector<Part> PartsOf(const Cell& cell) {
  std::vector<Part> parts = {{"client's lag", "lag", cell.intended.mean() - cell.service.mean()}};
  double accounted = 0;
  for (const StageName& stage : kStages) {
    const double mean = (cell.stages.*stage.histogram).mean();
    parts.push_back({stage.name, stage.label, mean});
    if (stage.histogram != &Stages::network) accounted += mean;
  }
  parts.push_back({"other in the server", "other", cell.stages.server.mean() - accounted});
  for (Part& part : parts) part.mean = std::max(0.0, part.mean);
  return parts;
}

std::string StageChart(const RunData& run, const std::vector<Cell>& classes, const Size& size) {
  constexpr double kRow = 46, kBar = 24;
  size_t rows = 0;
  for (const Cell& cell : classes) rows += cell.stages.server.empty() ? 0 : 1;
  Chart chart(size, static_cast<double>(rows) * kRow + 4, "stages", "Where the mean time went",
              "A bar for each class, split by stage. The table below holds the same figures.");
  double top = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].stages.server.empty()) continue;
    const std::vector<Part> parts = PartsOf(classes[i]);
    double whole = 0;
    for (const Part& part : parts) whole += part.mean;
    chart.Text(0, top + 13, "start", FitText(ClassName(run, i), chart.wide() ? 60 : 28),
               "label strong");
    chart.Text(size.width, top + 13, "end", "mean " + TimeSign(whole), "label");
    double left = 0;
    for (const Part& part : parts) {
      const double width = whole > 0 ? size.width * part.mean / whole : 0;
      chart.Box(left, top + 18, width, kBar, "part " + part.look,
                part.name + ": " + TimeSign(part.mean) + ", " + PercentText(part.mean, whole));
      // About seven pixels a letter.
      const std::string text = part.name + " " + PercentText(part.mean, whole);
      if (width > 7.0 * static_cast<double>(CellsOf(text))) {
        chart.Text(left + width / 2, top + 18 + kBar / 2 + 4, "middle", text, "inside");
      }
      left += width;
    }
    top += kRow;
  }
  return chart.Take();
}

}  // namespace

std::string StageFigure(const RunData& run) {
  const std::vector<Cell> classes = ByClass(run);
  if (std::all_of(classes.begin(), classes.end(),
                  [](const Cell& cell) { return cell.stages.server.empty(); })) {
    return "";
  }
  Markup figure;
  figure.Open("figure").NewLine().Open("p", {{"class", "legend"}});
  for (const Part& part : PartsOf(classes[0])) {
    figure.Open("span", {{"class", "key"}});
    figure.Open("svg", {{"viewBox", "0 0 12 12"}, {"class", "box"}, {"aria-hidden", "true"}});
    figure.Empty("rect", {{"class", "part " + part.look}, {"width", "12"}, {"height", "12"}});
    figure.Close().Text(part.name).Close().NewLine();
  }
  figure.Close().NewLine();
  for (const Size& size : kSizes) figure.Add(StageChart(run, classes, size));
  figure.Put(
      "figcaption",
      "Mean time of an OK answer from its intended time, by stage. The server's answers tell "
      "their own stages; the network is what remains between sending and the answer.");
  figure.NewLine().Close().NewLine();
  return figure.whole();
}

}  // namespace castor::load
