#include "client/top/frame.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "client/cli/report.h"

namespace castor::top {
namespace {

using cli::Ink;
using cli::Screen;
using cli::ScreenLine;
using Lines = std::vector<std::string>;
using Value = std::optional<double>;

constexpr size_t kLongestName = 48;

std::string Bytes(double bytes) {
  // A page's value may exceed any integer.
  return cli::FormatBytes(static_cast<int64_t>(std::clamp(bytes, 0.0, 9e18)));
}
std::string Seconds(double seconds) { return cli::TimeText(seconds * 1e9); }
std::string Share(double share) { return cli::FormatReal(100 * share, "%.0f%%"); }
std::string Batch(double requests) { return cli::FormatReal(requests, "%.1f"); }

// One row of the table. nullopt: the row has no such figure, or it is not known yet.
struct Row {
  std::string name;
  std::string state{};  // why a server does not serve
  bool silent = false;  // only the state is known
  Ink ink = Ink::kPlain;
  Value requests{}, errors{}, queue{}, busy{}, batch{}, memory{}, tokens{}, load{}, uptime{};
  std::optional<Work::Quantile> p50{}, p99{};
};

// A column, shown if the screen has room for it and all before it.
struct Column {
  const char* name;
  size_t cells;
  Value Row::*value;
  std::string (*text)(double value);
  std::optional<Work::Quantile> Row::*quantile = nullptr;  // instead of the value
};
constexpr Column kColumns[] = {
    {"REQ/S", 7, &Row::requests, cli::ShortText},
    {"P50", 9, nullptr, Seconds, &Row::p50},
    {"P99", 9, nullptr, Seconds, &Row::p99},
    {"ERR/S", 7, &Row::errors, cli::ShortText},
    {"QUEUE", 7, &Row::queue, cli::ShortCount},
    {"BATCH", 6, &Row::batch, Batch},
    {"BUSY", 6, &Row::busy, Share},
    {"MEMORY", 11, &Row::memory, Bytes},
    {"TOK/S", 7, &Row::tokens, cli::ShortText},
    {"LOAD", 6, &Row::load, Share},
    {"UP", 10, &Row::uptime, cli::ClockText},
};

Row RowOf(const std::string& name, const Work& work, const Rates& rates) {
  Row row{.name = name, .p50 = work.QuantileOf(0.5), .p99 = work.QuantileOf(0.99)};
  if (!rates.compared) return row;
  row.requests = work.requests;
  row.errors = work.errors;
  row.tokens = work.tokens;
  row.busy = work.compute / rates.servers;
  if (work.batches > 0) row.batch = work.in_batches / work.batches;
  return row;
}

// The row of one server, or of all servers added up.
Row RowOf(const std::string& name, const Rates& rates, double now) {
  Row row = RowOf(name, SumOf(WorkOf(rates)), rates);
  row.queue = ValueOf(rates.now, "castor_queue_depth");
  row.memory = ValueOf(rates.now, "process_resident_memory_bytes");
  row.load = ValueOf(rates.now, "castor_saturation_ratio");
  const Value start = ValueOf(rates.now, "process_start_time_seconds");
  if (start && rates.servers == 1) row.uptime = now - *start;
  const auto is = [&](std::string_view gauge, double otherwise) {
    return ValueOf(rates.now, gauge).value_or(otherwise) > 0;
  };
  if (rates.servers > 1) return row;
  row.state = !is("castor_device_healthy", 1)  ? "device failed"
              : is("castor_engine_stalled", 0) ? "stalled"
              : is("castor_draining", 0)       ? "draining"
              : !is("castor_ready", 0)         ? "not ready"
                                               : "";
  return row;
}

Row RowOf(const ServerView& server, double now) {
  if (server.rates) return RowOf(server.name, *server.rates, now);
  return {.name = server.name,
          .state = server.error.empty() ? "not read yet" : "unreachable: " + server.error,
          .silent = true};
}

std::string HeadOf(const Row& row) { return row.name + (row.state.empty() ? "" : " " + row.state); }

std::string LineOf(const Row& row, size_t names, const Screen& screen) {
  ScreenLine line(screen);
  const Ink ink = row.state.empty() ? row.ink : Ink::kYellow;
  if (row.silent) return line.Add(HeadOf(row), ink).TakeText();
  line.Column(HeadOf(row), names, false, ink);
  for (const Column& column : kColumns) {
    if (line.room() < column.cells) break;
    std::string text = "-";
    if (column.quantile != nullptr) {
      const auto& quantile = row.*column.quantile;
      if (quantile) {
        text = quantile->beyond ? ">" : "";
        text += column.text(quantile->seconds);
      }
    } else if (const Value& value = row.*column.value) {
      text = column.text(*value);
    }
    const bool wrong = column.value == &Row::errors && row.errors.value_or(0) > 0;
    line.Column(text, column.cells, true, wrong ? Ink::kYellow : row.ink);
  }
  return line.TakeText();
}

// Items after a label, wrapped to as many lines as they need.
class Flow {
 public:
  Flow(const Screen& screen, const std::string& label) : screen_(screen), line_(screen) {
    line_.Column(label, kLabel, false, Ink::kDim);
  }

  void Add(const std::string& item, Ink ink = Ink::kPlain) {
    if (items_++ > 0 && cli::CellsOf(item) + 3 > line_.room()) {
      lines_.push_back(line_.TakeText());
      line_ = ScreenLine(screen_);
      line_.Add(std::string(kLabel, ' '));
    } else if (items_ > 1) {
      line_.Add("   ");
    }
    line_.Add(item, ink);
  }

  // Adds a gauge, and its limit if there is one.
  void Add(const std::string& name, const Value& value, const Value& limit,
           std::string (*text)(double)) {
    if (value) Add(name + " " + text(*value) + (limit ? " of " + text(*limit) : ""));
  }

  void Add(const std::map<std::string, Counter>& counters) {
    for (const auto& [name, counter] : counters) {
      Add(name + " " + cli::RateText(counter.per_second) + "/s (" + cli::ShortCount(counter.total) +
              ")",
          counter.per_second > 0 ? Ink::kYellow : Ink::kPlain);
    }
  }

  Lines TakeLines() {
    if (items_ == 0) Add("none", Ink::kDim);
    lines_.push_back(line_.TakeText());
    return std::move(lines_);
  }

 private:
  static constexpr size_t kLabel = 9;
  const Screen& screen_;
  ScreenLine line_;
  Lines lines_;
  int items_ = 0;
};

void Append(Lines more, Lines* lines) {
  std::move(more.begin(), more.end(), std::back_inserter(*lines));
}

Lines Details(const Rates& rates, const Screen& screen) {
  const auto value = [&](std::string_view name, std::string_view part = "") {
    return ValueOf(rates.now, name, part);
  };
  constexpr std::string_view kLimit = "castor_queue_limit";
  Flow load(screen, "load");
  load.Add("queued", value("castor_queued_seconds"), value("castor_queued_seconds_limit"), Seconds);
  load.Add("oldest", value("castor_oldest_request_seconds"), {}, Seconds);
  load.Add("requests", value("castor_inflight_requests"), value(kLimit, "unit=\"requests\""),
           cli::ShortCount);
  load.Add("tokens", value("castor_inflight_tokens"), value(kLimit, "unit=\"tokens\""),
           cli::ShortCount);
  load.Add("bytes", value("castor_inflight_bytes"), value(kLimit, "unit=\"bytes\""), Bytes);
  Flow errors(screen, "errors");
  auto codes = CountersOf(rates, "castor_requests_total", "code");
  codes.erase("OK");
  errors.Add(codes);
  Flow refused(screen, "refused");
  refused.Add(CountersOf(rates, "castor_rejected_total", "reason"));
  Flow memory(screen, "memory");
  memory.Add("device", value("castor_device_memory_allocated_bytes"),
             value("castor_device_memory_limit_bytes"), Bytes);
  memory.Add("staging", value("castor_staging_memory_bytes", "state=\"in_use\""), {}, Bytes);
  memory.Add("heap", value("castor_heap_used_bytes"), {}, Bytes);
  for (const auto& [family, label, prefix] :
       {std::tuple{"castor_model_weights_bytes", "model", "weights of "},
        {"castor_run_memory_bytes", "kind", ""},
        {"castor_message_bytes", "direction", "messages "}}) {
    for (const auto& [name, bytes] : CountersOf(rates, family, label)) {
      memory.Add(prefix + name, bytes.total, {}, Bytes);
    }
  }
  Lines lines = load.TakeLines();
  for (Flow* const flow : {&errors, &refused, &memory}) Append(flow->TakeLines(), &lines);
  return lines;
}

}  // namespace

std::vector<std::string> FrameLines(const View& view, const Screen& screen) {
  std::vector<Row> rows;
  std::optional<Rates> total;
  size_t serving = 0;
  for (const ServerView& server : view.servers) {
    rows.push_back(RowOf(server, view.now));
    serving += rows.back().state.empty() ? 1 : 0;
    if (!server.rates) continue;
    if (total) {
      AddTo(*server.rates, &*total);
    } else {
      total = server.rates;
    }
  }
  Lines details;
  if (total) {
    if (total->servers > 1) {
      rows.push_back(RowOf("all", *total, view.now));
      rows.back().ink = Ink::kBold;
    }
    for (const auto& [name, work] : WorkOf(*total)) {
      rows.push_back(RowOf(name, work, *total));
      if (work.requests + work.errors == 0) rows.back().ink = Ink::kDim;
    }
    for (const auto& [name, time] :
         CountersOf(*total, "castor_tenant_compute_seconds_total", "tenant")) {
      Row& row = rows.emplace_back(Row{.name = "tenant " + name});
      if (total->compared) row.busy = time.per_second / total->servers;
    }
    details = Details(*total, screen);
  }
  // On a narrow screen the names are cut, so that the first five columns fit.
  size_t least = 1;
  for (size_t i = 0; i < 5; ++i) least += kColumns[i].cells;
  const size_t room =
      std::min(kLongestName, screen.columns > least + 8 ? screen.columns - least : 8);
  size_t names = 8;
  for (const Row& row : rows) {
    if (!row.silent) names = std::max(names, std::min(cli::CellsOf(HeadOf(row)), room));
  }

  const bool all = serving == view.servers.size();
  ScreenLine first(screen), head(screen);
  first.Add("castor top   ", Ink::kBold)
      .Add(std::to_string(serving) + " of " + std::to_string(view.servers.size()) + " ready",
           all ? Ink::kGreen : Ink::kYellow)
      .Add("   " + view.clock, Ink::kDim);
  head.Column("", names, false);
  for (const Column& column : kColumns) {
    if (head.room() < column.cells) break;
    head.Column(column.name, column.cells, true, Ink::kDim);
  }
  Lines lines = {first.TakeText(), head.TakeText()};
  // Rows that find no room above the details are counted.
  const size_t used = lines.size() + details.size();
  const size_t most = screen.rows == 0 ? SIZE_MAX : screen.rows > used + 1 ? screen.rows - used : 1;
  const size_t shown = rows.size() <= most ? rows.size() : most - 1;
  for (size_t i = 0; i < shown; ++i) lines.push_back(LineOf(rows[i], names, screen));
  if (shown < rows.size()) {
    lines.push_back(ScreenLine(screen)
                        .Add("and " + std::to_string(rows.size() - shown) + " more", Ink::kDim)
                        .TakeText());
  }
  Append(std::move(details), &lines);
  if (screen.rows > 0 && lines.size() > screen.rows) lines.resize(screen.rows);
  return lines;
}

}  // namespace castor::top
