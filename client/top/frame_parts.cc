#include "client/top/frame_parts.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <utility>

#include "client/cli/report.h"
#include "client/cli/text.h"

namespace castor::top {
namespace {

using cli::Ink;
using cli::Screen;
using cli::ScreenLine;

constexpr size_t kLabelCells = 10;
constexpr std::string_view kGap = "   ";

// Items after a label, on as many lines as they need.
class Flow {
 public:
  Flow(const Screen& screen, const std::string& label) : screen_(screen), line_(screen) {
    line_.Column(label, kLabelCells, false, Ink::kDim);
  }

  struct Span {
    std::string text;
    Ink ink = Ink::kPlain;
  };

  // An item does not break.
  void Add(std::initializer_list<Span> item) {
    size_t cells = 0;
    for (const Span& span : item) cells += cli::CellsOf(span.text);
    if (!fresh_ && cells + kGap.size() > line_.room()) {
      lines_.push_back(line_.Take());
      line_ = Indented();
      fresh_ = true;
    }
    if (!fresh_) line_.Add(kGap);
    for (const Span& span : item) line_.Add(span.text, span.ink);
    fresh_ = false;
  }

  Lines Take() {
    lines_.push_back(line_.Take());
    return std::move(lines_);
  }

 private:
  ScreenLine Indented() const {
    ScreenLine line(screen_);
    line.Add(std::string(kLabelCells, ' '));
    return line;
  }

  const Screen& screen_;
  ScreenLine line_;
  Lines lines_;
  bool fresh_ = true;  // the line has no item yet
};

std::string Bytes(double bytes) {
  // What a page claims may be beyond any integer.
  return cli::FormatBytes(static_cast<int64_t>(std::clamp(bytes, 0.0, 9e18)));
}

std::string Seconds(double seconds) { return cli::TimeText(seconds * 1e9); }

std::string PerSecond(double rate) { return cli::RateText(rate) + "/s"; }

// "14 of 1,024 requests".
std::string OfText(const Gauge& value, const Gauge& limit, std::string (*text)(double),
                   const std::string& unit) {
  return (value ? text(*value) : "-") + (limit ? " of " + text(*limit) : "") +
         (unit.empty() ? "" : " " + unit);
}

Ink InkOfLoad(double saturation) {
  return saturation >= 0.9 ? Ink::kRed : saturation >= 0.7 ? Ink::kYellow : Ink::kGreen;
}

void AddGrowths(const std::map<std::string, Growth>& growths, Flow* flow) {
  std::vector<std::pair<std::string, Growth>> sorted(growths.begin(), growths.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.per_second > b.second.per_second;
  });
  for (const auto& [name, growth] : sorted) {
    const bool now = growth.per_second > 0;
    flow->Add({{name + " ", now ? Ink::kYellow : Ink::kPlain},
               {PerSecond(growth.per_second), now ? Ink::kYellow : Ink::kPlain},
               {" (" + cli::ShortCount(growth.total) + ")", Ink::kDim}});
  }
}

}  // namespace

std::string SinceText(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e12));
  if (whole < 120) return std::to_string(whole) + " s";
  return whole < 7200 ? std::to_string(whole / 60) + " min" : std::to_string(whole / 3600) + " h";
}

std::string QuantileText(const Histogram& histogram, double quantile) {
  const auto value = histogram.Quantile(quantile);
  if (!value) return "-";
  return (histogram.IsBeyond(quantile) ? ">" : "") + Seconds(*value);
}

StateText StateOf(const ServerView& server, bool sentence) {
  if (!server.rates) {
    if (!server.unreachable_seconds) return {"not read yet", Ink::kDim};
    return {std::string("unreachable ") + (sentence ? "since " : "") +
                SinceText(*server.unreachable_seconds),
            Ink::kRed};
  }
  const Rates& rates = *server.rates;
  if (!rates.healthy) return {"device failed", Ink::kRed};
  if (rates.stalled) return {"stalled", Ink::kRed};
  if (rates.draining) return {"draining", Ink::kYellow};
  if (!rates.ready) return {"not ready", Ink::kYellow};
  if (server.restarted_seconds) {
    return {"restarted " + SinceText(*server.restarted_seconds) + (sentence ? " ago" : ""),
            Ink::kYellow};
  }
  return {"ready", Ink::kGreen};
}

Lines LoadLines(const Rates& rates, const Screen& screen) {
  const LoadGauges& load = rates.load;
  Flow first(screen, "load");
  if (load.saturation) {
    const double share = std::clamp(*load.saturation, 0.0, 1.0);
    const size_t cells = std::clamp<size_t>(screen.columns / 8, 10, 30);
    first.Add({{cli::Bar(share, cells, screen.unicode), InkOfLoad(share)},
               {cli::FormatReal(100 * share, " %.0f%%"), InkOfLoad(share)}});
  }
  first.Add(
      {{"queue "}, {load.queue_depth ? cli::ShortCount(*load.queue_depth) : "-", Ink::kBold}});
  first.Add({{"queued " + OfText(load.queued_seconds, load.queued_seconds_limit, Seconds, "")}});
  first.Add({{"oldest "}, {load.oldest_seconds ? Seconds(*load.oldest_seconds) : "-"}});
  Flow second(screen, "in flight");
  second.Add({{OfText(load.requests, load.requests_limit, cli::ShortCount, "requests")}});
  second.Add({{OfText(load.tokens, load.tokens_limit, cli::ShortCount, "tokens")}});
  second.Add({{OfText(load.bytes, load.bytes_limit, Bytes, "")}});
  Lines lines = first.Take(), more = second.Take();
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

Lines MemoryLines(const Rates& rates, const Screen& screen) {
  const MemoryGauges& memory = rates.memory;
  Flow flow(screen, "memory");
  if (memory.allocated) {
    flow.Add({{"device " + OfText(memory.allocated, memory.limit, Bytes, "")},
              {memory.reserved ? " (" + Bytes(*memory.reserved) + " reserved)" : ""}});
  }
  if (memory.staging_used) {
    flow.Add({{"staging " + Bytes(*memory.staging_used)},
              {memory.staging_cached ? " (" + Bytes(*memory.staging_cached) + " cached)" : ""}});
  }
  if (memory.resident) flow.Add({{"resident " + Bytes(*memory.resident)}});
  if (memory.heap) flow.Add({{"heap " + Bytes(*memory.heap)}});
  for (const auto& [name, bytes] : memory.others) {
    if (bytes > 0) flow.Add({{name + " " + Bytes(bytes)}});
  }
  return flow.Take();
}

Lines ErrorLines(const Rates& rates, const Screen& screen) {
  Flow errors(screen, "errors");
  AddGrowths(rates.errors, &errors);
  if (rates.errors.empty()) errors.Add({{"none", Ink::kDim}});
  Flow refusals(screen, "refused");
  AddGrowths(rates.refusals, &refusals);
  if (rates.refusals.empty()) refusals.Add({{"none", Ink::kDim}});
  Lines lines = errors.Take(), more = refusals.Take();
  lines.insert(lines.end(), more.begin(), more.end());
  std::map<std::string, Growth> others;
  if (rates.deadline_misses.total > 0) others["deadline misses"] = rates.deadline_misses;
  if (rates.faults.total > 0) others["faults of the device"] = rates.faults;
  if (others.empty()) return lines;
  Flow late(screen, "late");
  AddGrowths(others, &late);
  more = late.Take();
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

Lines ChartLines(const std::vector<Moment>& moments, const Screen& screen) {
  std::vector<std::optional<double>> requests, p99;
  for (const Moment& moment : moments) {
    requests.push_back(moment.requests);
    p99.push_back(moment.p99);
  }
  const auto line = [&](const char* label, const std::vector<std::optional<double>>& values,
                        std::string (*text)(double)) {
    constexpr size_t kCharts = 60, kNow = 12, kRoomForMost = 100;
    const size_t used = kLabelCells + kNow;
    const size_t room = screen.columns > used + 1 ? screen.columns - used - 1 : 0;
    const std::string now =
        values.empty() || !values.back().has_value() ? "-" : text(values.back().value());
    ScreenLine row(screen);
    row.Column(label, kLabelCells, false, Ink::kDim)
        .Column(now, kNow, false, Ink::kBold)
        .Add(cli::Sparkline(values, std::min(room, kCharts), screen.unicode));
    const auto most = std::max_element(values.begin(), values.end());
    if (screen.columns >= kRoomForMost && most != values.end() && *most) {
      row.Add("   most " + text(**most), Ink::kDim);
    }
    return row.Take();
  };
  return {line("requests", requests, PerSecond), line("p99", p99, Seconds)};
}

}  // namespace castor::top
