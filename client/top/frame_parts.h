// The parts of a frame, each some lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/screen.h"
#include "client/top/frame.h"
#include "client/top/rates.h"

namespace castor::top {

using Lines = std::vector<std::string>;

std::string SinceText(double seconds);  // "5 s", "12 min", "3 h"

// A quantile of an interval: "12.4 ms", ">10.0 s", "-".
std::string QuantileText(const Histogram& histogram, double quantile);

// "ready", "unreachable 5 s"; in a sentence "unreachable since 5 s".
struct StateText {
  std::string text;
  cli::Ink ink = cli::Ink::kPlain;
};
StateText StateOf(const ServerView& server, bool sentence);

Lines LoadLines(const Rates& rates, const cli::Screen& screen);
Lines MemoryLines(const Rates& rates, const cli::Screen& screen);
Lines ErrorLines(const Rates& rates, const cli::Screen& screen);
Lines ChartLines(const std::vector<Moment>& moments, const cli::Screen& screen);

// Tables: a line of names, the rows, and their sum if there are several. At most `most` rows; a
// line says of those left out.
Lines WorkTable(const Rates& rates, Sort sort, size_t most, const cli::Screen& screen);
Lines ServerTable(const View& view, const Rates* total, size_t most, const cli::Screen& screen);

}  // namespace castor::top
