// The parts that all charts are drawn with. A chart is inline SVG without colours: its elements
// have classes, and report.css says how they look in light, in dark and in print.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/load/output/markup.h"
#include "client/load/output/scale.h"

namespace castor::load {

// Each chart is drawn twice, since its text does not shrink with it: report.css shows one of them.
struct Size {
  std::string_view name;  // "wide", "narrow": their class
  double width;           // in pixels at which text is of its right size
  double left, right;     // margins for the axes' labels
  size_t points;          // that a line may have
};
inline constexpr Size kSizes[] = {{"wide", 920, 64, 84, 360}, {"narrow", 360, 52, 14, 120}};

// Below a chart's axis, for its ticks. report.js knows it, too.
inline constexpr double kAxisSpace = 22;

struct Area {
  double left, top, right, bottom;
};

struct Point {
  double x, y;  // positions; a y that is not a number is a gap
};

class Chart {
 public:
  // `title` and `description` are for those who do not see it. `id` is unique on the page.
  Chart(const Size& size, double height, const std::string& id, const std::string& title,
        const std::string& description);

  const Size& size() const { return size_; }
  bool wide() const { return size_.name == "wide"; }
  // From margin to margin, between two heights.
  Area Between(double top, double bottom) const;

  // Lines of a grid at `ticks`, and what `text` makes of each beside them.
  void LeftAxis(const Area& area, const Scale& y, const std::vector<double>& ticks,
                const std::function<std::string(double)>& text);
  void BottomAxis(const Area& area, const Scale& x, const std::vector<double>& ticks,
                  const std::function<std::string(double)>& text);

  void Line(const std::vector<Point>& points, std::string_view classes);
  // Between two lines with the same x.
  void Band(const std::vector<Point>& low, const std::vector<Point>& high,
            std::string_view classes);
  void Rule(double x1, double y1, double x2, double y2, std::string_view classes);
  void Box(double x, double y, double width, double height, std::string_view classes,
           const std::string& title = "");
  void Ring(double x, double y, std::string_view classes, const std::string& title);
  // `anchor` is "start", "middle" or "end".
  void Text(double x, double y, std::string_view anchor, const std::string& text,
            std::string_view classes = "");
  // A group with a class, for what is shown or hidden together.
  void OpenGroup(std::string_view classes);
  void CloseGroup();

  std::string Take();

 private:
  const Size size_;
  const double height_;
  Markup svg_;
};

// Round times in [0, seconds], at most about `count`.
std::vector<double> TimeTicks(double seconds, int count);

// Moves labels apart that would overlap: at least `gap` between any two, in the same order.
std::vector<double> Spread(std::vector<double> positions, double gap, double low, double high);

// "s0" to "s5": the colour of the i-th class.
std::string SeriesClass(size_t index);

}  // namespace castor::load
