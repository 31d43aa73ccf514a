#include "client/top/frame.h"

#include <algorithm>
#include <utility>

#include "client/cli/report.h"
#include "client/cli/text.h"
#include "client/top/frame_parts.h"

namespace castor::top {
namespace {

using cli::Ink;
using cli::Screen;
using cli::ScreenLine;

// The line with the clock at its right end, if there is room.
std::string WithClock(ScreenLine line, const View& view) {
  const size_t cells = cli::CellsOf(view.clock);
  if (!view.clock.empty() && line.room() >= cells + 3) {
    line.Add(std::string(line.room() - cells, ' ')).Add(view.clock, Ink::kDim);
  }
  return line.Take();
}

std::string CoresText(const Rates& rates) {
  return rates.processor ? "   " + cli::FormatReal(*rates.processor, "%.2f cores") : "";
}

Lines HeadOfOne(const View& view, const Screen& screen) {
  const ServerView& server = view.servers[0];
  const StateText state = StateOf(server, /*sentence=*/true);
  ScreenLine line(screen);
  line.Add(server.name, Ink::kBold).Add("   ").Add(state.text, state.ink);
  if (view.paused) line.Add("   paused", Ink::kYellow);
  if (!server.rates) {
    Lines lines = {WithClock(std::move(line), view)};
    if (!server.error.empty()) {
      lines.push_back(ScreenLine(screen).Add(server.error, Ink::kRed).Take());
    }
    return lines;
  }
  const Rates& rates = *server.rates;
  if (rates.uptime) line.Add("   up " + cli::ClockText(*rates.uptime));
  line.Add(CoresText(rates));
  if (rates.load.connections) {
    line.Add("   " + cli::ShortCount(*rates.load.connections) +
             (*rates.load.connections == 1 ? " connection" : " connections"));
  }
  const std::string what = "castor " + rates.version + " on " + rates.device +
                           (rates.backend.empty() ? "" : ", " + rates.backend);
  return {WithClock(std::move(line), view), ScreenLine(screen).Add(what, Ink::kDim).Take()};
}

Lines HeadOfMany(const View& view, const Rates* total, const Screen& screen) {
  size_t ready = 0;
  for (const ServerView& server : view.servers) {
    const bool is = server.rates && server.rates->ready && !server.rates->stalled;
    ready += is && !server.rates->draining ? 1 : 0;
  }
  const bool all = ready == view.servers.size();
  ScreenLine line(screen);
  line.Add(std::to_string(view.servers.size()) + " servers", Ink::kBold).Add("   ");
  line.Add((all ? "all" : std::to_string(ready)) + " ready", all ? Ink::kGreen : Ink::kYellow);
  if (view.paused) line.Add("   paused", Ink::kYellow);
  if (total != nullptr) line.Add(CoresText(*total));
  return {WithClock(std::move(line), view)};
}

std::string KeysLine(const View& view, const Screen& screen) {
  constexpr const char* kNames[] = {"name", "requests", "p99", "errors"};
  return ScreenLine(screen)
      .Add("q quit   p " + std::string(view.paused ? "go on" : "pause") + "   s sort by " +
               kNames[static_cast<size_t>(view.sort)] + "   ? help   every " +
               cli::FormatReal(view.interval, "%.3g s"),
           Ink::kDim)
      .Take();
}

Lines HelpLines(const Screen& screen) {
  Lines lines;
  for (const char* text : {
           "load       share in use of the scarcest budget",
           "queued     predicted time of waiting requests, and its limit",
           "in flight  admitted and not answered, of the budgets",
           "REQ/S      calls answered OK; ERR/S: answered otherwise",
           "TOK/S      tokens computed",
           "P50 P99    time of a call in the server; linear within a histogram's bucket",
           "WAIT P95   of a request in the queue",
           "BATCH      requests in a batch, mean",
           "BUSY       share of the time in which the device computes this",
           "errors     status codes, per second (and since the server's start)",
           "refused    by the engine, by reason",
           "-          instead of a kernel: the call ended before one was chosen",
           "",
           "All rates and times are those of the last interval.",
           "Keys: q quit, p pause, s sort by name, requests, p99 or errors. Any key: back.",
       }) {
    lines.push_back(ScreenLine(screen).Add(text).Take());
  }
  return lines;
}

void Append(Lines more, Lines* lines) {
  std::move(more.begin(), more.end(), std::back_inserter(*lines));
}

}  // namespace

std::optional<Rates> TotalOf(const std::vector<ServerView>& servers) {
  std::optional<Rates> total;
  for (const ServerView& server : servers) {
    if (!server.rates) continue;
    if (total) {
      AddTo(*server.rates, &*total);
    } else {
      total = server.rates;
    }
  }
  return total;
}

std::vector<std::string> FrameLines(const View& view, const Screen& screen) {
  const auto total = TotalOf(view.servers);
  const Rates* const rates = total ? &*total : nullptr;
  const bool one = view.servers.size() == 1;
  Lines head = one ? HeadOfOne(view, screen) : HeadOfMany(view, rates, screen);
  Lines after;  // the tables
  if (view.help) {
    head.emplace_back();
    Append(HelpLines(screen), &head);
  } else {
    if (one && rates != nullptr) Append(LoadLines(*rates, screen), &head);
    Append(ChartLines(view.moments, screen), &head);
    head.emplace_back();
    after.emplace_back();
    if (rates != nullptr) {
      Append(ErrorLines(*rates, screen), &after);
      Append(MemoryLines(*rates, screen), &after);
    }
  }
  const bool keys = view.keys && !view.help;

  Lines lines = std::move(head);
  if (!view.help) {
    // What the rest leaves is for the tables: of two, each has a head and a sum besides its rows.
    constexpr size_t kAround = 2, kMany = 1000;
    const size_t used =
        lines.size() + after.size() + (keys ? 1 : 0) + kAround + (one ? 0 : kAround + 1);
    size_t rows = screen.rows == 0 ? kMany : screen.rows > used + 4 ? screen.rows - used : 4;
    if (!one) {
      const size_t servers = std::min(view.servers.size(), std::max<size_t>(rows / 2, 2));
      Append(ServerTable(view, rates, servers, screen), &lines);
      lines.emplace_back();
      rows = rows > servers + 2 ? rows - servers : 2;
    }
    if (rates != nullptr) Append(WorkTable(*rates, view.sort, rows, screen), &lines);
  }
  Append(std::move(after), &lines);
  const size_t room = screen.rows == 0 ? lines.size() : screen.rows - (keys ? 1 : 0);
  if (lines.size() > room) std::erase(lines, "");
  if (lines.size() > room) lines.resize(room);
  if (keys) {
    if (screen.rows > 0) lines.resize(room);  // at the bottom
    lines.push_back(KeysLine(view, screen));
  }
  return lines;
}

}  // namespace castor::top
