// The tables of the HTML report. Each returns markup, empty where there is nothing to show.
#pragma once

#include <string>
#include <vector>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// A cell of a table: its text, and classes of report.css ("text", "prose", "missed").
struct TableCell {
  std::string text, classes = "";
};
struct TableRow {
  std::vector<TableCell> cells;  // the first is the row's head
  std::string classes = "";      // "sum": a line above; "more": no line, it goes on the one before
};

// `head` is as wide as the rows; the heads of cells with class text or prose stand left, too. Empty
// without rows.
std::string HtmlTable(const std::string& caption, const std::vector<std::string>& head,
                      const std::vector<TableRow>& rows);

std::string OverviewTable(const RunData& run);
std::string LatencyTable(const RunData& run);
std::string OutcomeTable(const RunData& run);
std::string EndpointTable(const RunData& run);
std::string MessageTable(const RunData& run);
std::string StageTable(const RunData& run);
std::string VerificationTable(const RunData& run);
std::string ClientTable(const RunData& run);
std::string FindingsTable(const std::string& caption, const std::vector<Finding>& findings,
                          const std::string& passed, const std::string& failed);

}  // namespace castor::load
