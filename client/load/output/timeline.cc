#include "client/load/output/timeline.h"

#include <algorithm>
#include <limits>

namespace castor::load {
namespace {

// Adds up seconds that follow each other, or that are the same second of several classes.
struct Span {
  Histogram intended;
  std::array<int64_t, kOutcomes> outcomes{};
  int64_t in_flight = 0, max_lag = 0;

  void Add(const Second& second) {
    intended.Add(second.intended);
    for (size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += second.outcomes[i];
    max_lag = std::max(max_lag, second.max_lag_ns);
  }
};

Moment MomentOf(const Span& span, double middle, double seconds) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto value = [&](int64_t ns) {
    return span.intended.empty() ? kNone : static_cast<double>(ns);
  };
  Moment moment{.middle = middle,
                .p50 = value(span.intended.ValueAt(0.5)),
                .p99 = value(span.intended.ValueAt(0.99)),
                .max = value(span.intended.max())};
  for (size_t i = 0; i < span.outcomes.size(); ++i) {
    moment.rates[i] = static_cast<double>(span.outcomes[i]) / seconds;
    moment.planned += moment.rates[i];
  }
  moment.in_flight = static_cast<double>(span.in_flight);
  moment.max_lag = static_cast<double>(span.max_lag);
  return moment;
}

}  // namespace

Timeline MakeTimeline(const RunData& run, size_t most) {
  const size_t count = run.seconds.size(), classes = run.classes.size();
  const size_t step = std::max<size_t>(1, (count + most - 1) / most);
  Timeline timeline{.step = static_cast<double>(step)};
  timeline.classes.resize(classes);
  for (size_t begin = 0; begin < count; begin += step) {
    const size_t end = std::min(count, begin + step);
    const auto seconds = static_cast<double>(end - begin);
    const double middle = static_cast<double>(begin) + seconds / 2;
    std::vector<Span> spans(classes);
    Span all;
    for (size_t i = begin; i < end; ++i) {
      int64_t in_flight = 0;  // of all classes at once
      for (size_t cls = 0; cls < std::min(classes, run.seconds[i].size()); ++cls) {
        const Second& second = run.seconds[i][cls];
        spans[cls].Add(second);
        all.Add(second);
        spans[cls].in_flight = std::max(spans[cls].in_flight, second.in_flight);
        in_flight += second.in_flight;
      }
      all.in_flight = std::max(all.in_flight, in_flight);
    }
    for (size_t cls = 0; cls < classes; ++cls) {
      timeline.classes[cls].push_back(MomentOf(spans[cls], middle, seconds));
    }
    timeline.all.push_back(MomentOf(all, middle, seconds));
  }
  return timeline;
}

}  // namespace castor::load
