// Shows a run: as text for a terminal, and as one HTML file that needs no network, scripts or
// fonts. Names and messages may be hostile, and are sanitized.
#pragma once

#include <string>
#include <vector>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"

namespace castor::load {

std::string SummaryText(const RunData& run, const Verdict& verdict);

// Below 1 MB for an hour of four classes.
std::string ReportHtml(const RunData& run, const Verdict& verdict);

// "12.3%"; "-" if `whole` is 0. Rounding never gives 100% for less than all, nor 0% for more than
// none.
std::string PercentText(double part, double whole);
// "open loop, 200 requests/s", "closed loop".
std::string LoopText(const RunData& run);

// The tables of both forms. The first `text_columns` columns hold text, the others figures.
struct Table {
  using Row = std::vector<std::string>;
  std::string caption;
  Row head;
  size_t text_columns = 1;
  std::vector<Row> rows = {};
};
Table FindingsTable(const Verdict& verdict);  // failures come first
Table LatencyTable(const RunData& run);
Table OutcomeTable(const RunData& run);
Table MessageTable(const RunData& run);
Table StageTable(const RunData& run);
Table SettingTable(const RunData& run);

}  // namespace castor::load
