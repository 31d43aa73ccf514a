#include "client/load/output/chart.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace castor::load {
namespace {

std::string PathOf(const std::vector<Point>& points) {
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (std::isnan(point.y)) {
      pen_down = false;
      continue;
    }
    path += (pen_down ? "L" : "M") + Position(point.x) + " " + Position(point.y);
    // A point between two gaps is drawn as a dot: a line of no length with round ends.
    const bool alone = !pen_down && (i + 1 == points.size() || std::isnan(points[i + 1].y));
    if (alone) path += "h0";
    pen_down = true;
  }
  return path;
}

}  // namespace

Chart::Chart(const Size& size, double height, const std::string& id, const std::string& title,
             const std::string& description)
    : size_(size), height_(height) {
  const std::string name = id + "-" + std::string(size.name);
  svg_.Open("svg", {{"class", "chart " + std::string(size.name)},
                    {"viewBox", "0 0 " + Position(size.width) + " " + Position(height)},
                    {"role", "img"},
                    {"aria-labelledby", name + "-t " + name + "-d"},
                    {"data-left", Position(size.left)},
                    {"data-right", Position(size.width - size.right)}});
  svg_.Put("title", title, {{"id", name + "-t"}}).Put("desc", description, {{"id", name + "-d"}});
}

Area Chart::Between(double top, double bottom) const {
  return {size_.left, top, size_.width - size_.right, bottom};
}

void Chart::LeftAxis(const Area& area, const Scale& y, const std::vector<double>& ticks,
                     const std::function<std::string(double)>& text) {
  for (const double tick : ticks) {
    const double at = y.At(tick);
    Rule(area.left, at, area.right, at, "grid");
    Text(area.left - 6, at + 4, "end", text(tick), "tick");
  }
}

void Chart::BottomAxis(const Area& area, const Scale& x, const std::vector<double>& ticks,
                       const std::function<std::string(double)>& text) {
  Rule(area.left, area.bottom, area.right, area.bottom, "axis");
  for (const double tick : ticks) {
    Rule(x.At(tick), area.bottom, x.At(tick), area.bottom + 4, "axis");
    Text(x.At(tick), area.bottom + 16, "middle", text(tick), "tick");
  }
}

void Chart::Line(const std::vector<Point>& points, std::string_view classes) {
  const std::string path = PathOf(points);
  if (path.empty()) return;
  svg_.Empty("path", {{"class", "line " + std::string(classes)}, {"d", path}});
}

void Chart::Band(const std::vector<Point>& low, const std::vector<Point>& high,
                 std::string_view classes) {
  // A piece for each stretch without gaps.
  std::string path;
  for (size_t begin = 0; begin < low.size();) {
    const auto gap = [&](size_t i) { return std::isnan(low[i].y) || std::isnan(high[i].y); };
    size_t end = begin;
    while (end < low.size() && !gap(end)) ++end;
    if (end - begin > 1) {
      for (size_t i = begin; i < end; ++i) {
        path += (i == begin ? "M" : "L") + Position(high[i].x) + " " + Position(high[i].y);
      }
      for (size_t i = end; i-- > begin;) {
        path += "L" + Position(low[i].x) + " " + Position(low[i].y);
      }
      path += "Z";
    }
    begin = end + 1;
  }
  if (!path.empty()) svg_.Empty("path", {{"class", "band " + std::string(classes)}, {"d", path}});
}

void Chart::Rule(double x1, double y1, double x2, double y2, std::string_view classes) {
  svg_.Empty("path", {{"class", classes},
                      {"d", "M" + Position(x1) + " " + Position(y1) + "L" + Position(x2) + " " +
                                Position(y2)}});
}

void Chart::Box(double x, double y, double width, double height, std::string_view classes,
                const std::string& title) {
  if (width <= 0 || height <= 0) return;
  const std::string at[] = {Position(x), Position(y), Position(width), Position(height)};
  const Markup::Attributes attributes = {
      {"class", classes}, {"x", at[0]}, {"y", at[1]}, {"width", at[2]}, {"height", at[3]}};
  if (title.empty()) {
    svg_.Empty("rect", attributes);
  } else {
    svg_.Open("rect", attributes).Put("title", title).Close();
  }
}

void Chart::Ring(double x, double y, std::string_view classes, const std::string& title) {
  svg_.Open("circle", {{"class", "ring " + std::string(classes)},
                       {"cx", Position(x)},
                       {"cy", Position(y)},
                       {"r", "4.5"}});
  svg_.Put("title", title).Close();
}

void Chart::Text(double x, double y, std::string_view anchor, const std::string& text,
                 std::string_view classes) {
  svg_.Put("text", text,
           {{"class", classes}, {"x", Position(x)}, {"y", Position(y)}, {"text-anchor", anchor}});
}

void Chart::OpenGroup(std::string_view classes) { svg_.Open("g", {{"class", classes}}); }
void Chart::CloseGroup() { svg_.Close(); }

std::string Chart::Take() {
  svg_.Close().NewLine();
  return svg_.whole();
}

std::vector<double> TimeTicks(double seconds, int count) {
  // Clock faces have round numbers of their own.
  double step = 1;
  for (const double candidate :
       {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400}) {
    step = candidate;
    if (seconds / step <= count) break;
  }
  step = std::max(step, seconds / count);
  std::vector<double> ticks;
  for (double tick = 0; tick <= seconds; tick += step) ticks.push_back(tick);
  return ticks;
}

std::vector<double> Spread(std::vector<double> positions, double gap, double low, double high) {
  std::vector<size_t> order(positions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return positions[a] < positions[b]; });
  double least = low;
  for (const size_t i : order) {
    positions[i] = std::max(positions[i], least);
    least = positions[i] + gap;
  }
  double most = high;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    positions[*i] = std::min(positions[*i], most);
    most = positions[*i] - gap;
  }
  return positions;
}

std::string SeriesClass(size_t index) { return "s" + std::to_string(index % 6); }

}  // namespace castor::load
