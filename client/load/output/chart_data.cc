// The charts' values for report.js.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/load/output/chart.h"
#include "client/load/output/figures.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

// {"name": "p99", "unit": "us", "values": [1, 2, null, ...]}
template <typename Value>
Json Series(const char* name, const char* unit, const std::vector<Moment>& moments,
            const Value& value) {
  Json values = Json::array();
  for (const Moment& moment : moments) {
    const double number = value(moment);
    if (std::isnan(number)) {
      values.push_back(nullptr);
    } else if (std::string_view(unit) == "us") {
      values.push_back(std::llround(number / 1e3));
    } else {
      values.push_back(std::round(number * 10) / 10);
    }
  }
  return {{"name", name}, {"unit", unit}, {"values", std::move(values)}};
}

Json OutcomeSeries(const std::vector<Moment>& moments, Outcome outcome) {
  return Series(NameOf(outcome), "/s", moments, [outcome](const Moment& moment) {
    return moment.rates[static_cast<size_t>(outcome)];
  });
}

Json Panels(const Timeline& timeline) {
  Json panels;
  for (size_t cls = 0; cls < timeline.classes.size(); ++cls) {
    const std::vector<Moment>& moments = timeline.classes[cls];
    panels["c" + std::to_string(cls)] = {
        Series("median", "us", moments, [](const Moment& m) { return m.p50; }),
        Series("p99", "us", moments, [](const Moment& m) { return m.p99; }),
        Series("max", "us", moments, [](const Moment& m) { return m.max; }),
        OutcomeSeries(moments, Outcome::kRefused),
        OutcomeSeries(moments, Outcome::kExpired),
        OutcomeSeries(moments, Outcome::kFailed),
        OutcomeSeries(moments, Outcome::kDropped)};
  }
  panels["rates"] = {
      Series("planned", "/s", timeline.all, [](const Moment& m) { return m.planned; }),
      OutcomeSeries(timeline.all, Outcome::kOk)};
  panels["flight"] = {
      Series("in flight", "", timeline.all, [](const Moment& m) { return m.in_flight; })};
  panels["lag"] = {Series("lag", "us", timeline.all, [](const Moment& m) { return m.max_lag; })};
  return panels;
}

Json Curve(const Histogram& histogram, size_t most) {
  Json values = Json::array();
  for (const PercentilePoint& point : CurveOf(histogram, most))
    values.push_back(point.value / 1000);
  return values;
}

}  // namespace

std::string ChartData(const RunData& run) {
  const size_t most = kSizes[0].points;
  const Timeline timeline = MakeTimeline(run, most);
  Json curves = Json::array();
  int64_t greatest = 100;  // as the chart's axis ends
  const std::vector<Cell> classes = ByClass(run);
  for (const Cell& cell : classes) {
    greatest = std::max({greatest, cell.intended.count(), cell.service.count()});
  }
  for (size_t cls = 0; cls < classes.size(); ++cls) {
    const Cell& cell = classes[cls];
    curves.push_back({{"name", CleanText(ClassName(run, cls))},
                      {"count", cell.intended.count()},
                      {"intended", Curve(cell.intended, most)},
                      {"sending", Curve(cell.service, most)}});
  }
  const Json data = {{"step", timeline.step},
                     {"seconds", run.seconds.size()},
                     {"panels", Panels(timeline)},
                     {"greatest_count", greatest},
                     {"curves", std::move(curves)}};
  // A "<" could end the script element, or begin a comment in it.
  std::string text;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return text;
}

}  // namespace castor::load
