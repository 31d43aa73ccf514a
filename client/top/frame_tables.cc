// The tables of a frame.
#include <algorithm>
#include <string>
#include <utility>

#include "client/cli/report.h"
#include "client/cli/text.h"
#include "client/top/frame_parts.h"

namespace castor::top {
namespace {

using cli::Ink;
using cli::Screen;
using cli::ScreenLine;

constexpr size_t kLongestName = 40;

// What all rows of both tables show.
struct Row {
  std::string name;
  StateText state{};                // of servers
  const WorkRates* work = nullptr;  // null: not known
  const LoadGauges* load = nullptr;
  Gauge resident{};
  int servers = 1;
  bool rates = false;  // rates are known
  Ink ink = Ink::kPlain;

  double SortedBy(Sort sort) const {
    if (sort == Sort::kName) return 0;
    if (work == nullptr) return -1;
    if (sort == Sort::kRequests) return work->requests;
    if (sort == Sort::kErrors) return work->errors;
    return work->latency.Quantile(0.99).value_or(-1);
  }
};

// A column: shown if the screen is at least so wide.
struct Column {
  const char* name;
  size_t cells;
  size_t least_columns;
  std::string (*text)(const Row& row);
};

std::string RateOf(const Row& row, double WorkRates::*rate) {
  return row.work != nullptr && row.rates ? cli::ShortText(row.work->*rate) : "-";
}
std::string Requests(const Row& row) { return RateOf(row, &WorkRates::requests); }
std::string Tokens(const Row& row) { return RateOf(row, &WorkRates::tokens); }
std::string Errors(const Row& row) { return RateOf(row, &WorkRates::errors); }
template <int kPercent>
std::string Latency(const Row& row) {
  return row.work == nullptr ? "-" : QuantileText(row.work->latency, kPercent / 100.0);
}
std::string Wait(const Row& row) {
  return row.work == nullptr ? "-" : QuantileText(row.work->wait, 0.95);
}
std::string Batch(const Row& row) {
  if (row.work == nullptr || row.work->batches <= 0) return "-";
  return cli::FormatReal(row.work->in_batches / row.work->batches, "%.1f");
}
// The share of the time in which the device computes this; of several, their mean.
std::string Busy(const Row& row) {
  if (row.work == nullptr || !row.rates) return "-";
  return cli::FormatReal(100 * row.work->compute / row.servers, "%.0f%%");
}
std::string Load(const Row& row) {
  if (row.load == nullptr || !row.load->saturation) return "-";
  return cli::FormatReal(100 * *row.load->saturation, "%.0f%%");
}
std::string Queue(const Row& row) {
  return row.load == nullptr || !row.load->queue_depth ? "-"
                                                       : cli::ShortCount(*row.load->queue_depth);
}
std::string Resident(const Row& row) {
  return row.resident ? cli::FormatBytes(static_cast<int64_t>(std::clamp(*row.resident, 0.0, 9e18)))
                      : "-";
}

constexpr Column kWorkColumns[] = {
    {"REQ/S", 7, 0, Requests},  {"TOK/S", 7, 0, Tokens},    {"P50", 9, 0, Latency<50>},
    {"P95", 9, 0, Latency<95>}, {"P99", 9, 0, Latency<99>}, {"WAIT P95", 10, 100, Wait},
    {"BATCH", 6, 0, Batch},     {"BUSY", 6, 90, Busy},      {"ERR/S", 7, 0, Errors},
};
constexpr Column kServerColumns[] = {
    {"LOAD", 6, 0, Load},         {"QUEUE", 7, 0, Queue},
    {"REQ/S", 7, 0, Requests},    {"TOK/S", 7, 90, Tokens},
    {"P50", 9, 120, Latency<50>}, {"P95", 9, 120, Latency<95>},
    {"P99", 9, 0, Latency<99>},   {"BUSY", 6, 110, Busy},
    {"ERR/S", 7, 0, Errors},      {"RESIDENT", 11, 100, Resident},
};

size_t CellsOfNames(const std::vector<Row>& rows, const std::string& head, size_t most) {
  size_t cells = head.size();
  for (const Row& row : rows) cells = std::max(cells, cli::CellsOf(row.name));
  return std::min(cells, most);
}

template <size_t kColumns>
std::string HeadOf(const std::string& head, size_t names, size_t states,
                   const Column (&columns)[kColumns], const Screen& screen) {
  ScreenLine line(screen);
  line.Column(head, names, false, Ink::kDim);
  if (states > 0) line.Column("  STATE", states, false, Ink::kDim);
  for (const Column& column : columns) {
    if (column.least_columns > screen.columns) continue;
    line.Column(column.name, column.cells, true, Ink::kDim);
  }
  return line.Take();
}

template <size_t kColumns>
std::string LineOf(const Row& row, size_t names, size_t states, const Column (&columns)[kColumns],
                   const Screen& screen) {
  ScreenLine line(screen);
  line.Column(row.name, names, false, row.ink);
  if (states > 0) line.Column("  " + row.state.text, states, false, row.state.ink);
  for (const Column& column : columns) {
    if (column.least_columns > screen.columns) continue;
    const bool wrong = column.text == Errors && row.work != nullptr && row.work->errors > 0;
    line.Column(column.text(row), column.cells, true, wrong ? Ink::kYellow : row.ink);
  }
  return line.Take();
}

template <size_t kColumns>
Lines TableOf(const std::string& head, std::vector<Row> rows, const Row* total, size_t states,
              Sort sort, size_t most, const Column (&columns)[kColumns], const Screen& screen) {
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return a.SortedBy(sort) > b.SortedBy(sort); });
  size_t others = states;
  for (const Column& column : columns) {
    if (column.least_columns <= screen.columns) others += column.cells;
  }
  // Names give way where the screen is narrow.
  const size_t room = screen.columns > others + 9 ? screen.columns - others - 1 : 8;
  const size_t names = CellsOfNames(rows, head, std::min(room, kLongestName));
  Lines lines = {HeadOf(head, names, states, columns, screen)};
  const size_t shown = rows.size() <= most ? rows.size() : std::max<size_t>(most, 2) - 1;
  for (size_t i = 0; i < shown; ++i) {
    lines.push_back(LineOf(rows[i], names, states, columns, screen));
  }
  if (shown < rows.size()) {
    const std::string text = "and " + std::to_string(rows.size() - shown) + " more";
    lines.push_back(ScreenLine(screen).Add(text, Ink::kDim).Take());
  }
  if (total != nullptr && rows.size() > 1) {
    lines.push_back(LineOf(*total, names, states, columns, screen));
  }
  return lines;
}

}  // namespace

Lines WorkTable(const Rates& rates, Sort sort, size_t most, const Screen& screen) {
  std::vector<Row> rows;
  for (const auto& [key, work] : rates.work) {
    if (work.total == 0 && work.batches == 0) continue;  // never asked for
    rows.push_back({.name = key.first + " " + (key.second == "none" ? "-" : key.second),
                    .work = &work,
                    .servers = rates.servers,
                    .rates = rates.seconds > 0,
                    .ink = work.requests + work.errors > 0 ? Ink::kPlain : Ink::kDim});
  }
  if (rows.empty()) {
    return {ScreenLine(screen).Add("no requests since the start", Ink::kDim).Take()};
  }
  const WorkRates sum = rates.Sum();
  const Row total = {.name = "all",
                     .work = &sum,
                     .servers = rates.servers,
                     .rates = rates.seconds > 0,
                     .ink = Ink::kBold};
  return TableOf("KERNEL", std::move(rows), &total, 0, sort, most, kWorkColumns, screen);
}

Lines ServerTable(const View& view, const Rates* total, size_t most, const Screen& screen) {
  constexpr size_t kStates = 19;
  std::vector<WorkRates> sums(view.servers.size() + 1);
  std::vector<Row> rows;
  const auto row_of = [](const std::string& name, const Rates* rates, WorkRates* sum) {
    Row row{.name = name};
    if (rates == nullptr) return row;
    *sum = rates->Sum();
    row.work = sum;
    row.load = &rates->load;
    row.resident = rates->memory.resident;
    row.servers = rates->servers;
    row.rates = rates->seconds > 0;
    return row;
  };
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const ServerView& server = view.servers[i];
    rows.push_back(row_of(server.name, server.rates ? &*server.rates : nullptr, &sums[i]));
    rows.back().state = StateOf(server, /*sentence=*/false);
  }
  Row all = row_of("all", total, &sums.back());
  all.ink = Ink::kBold;
  return TableOf("SERVER", std::move(rows), &all, kStates, view.sort, most, kServerColumns, screen);
}

}  // namespace castor::top
