#include "client/load/output/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/load_runs.h"

namespace castor::load {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// A reader of RFC 4180 that shares nothing with the writer. Throws on a stray quote.
Rows ReadCsv(const std::string& text) {
  Rows rows(1);
  std::string field;
  bool quoted = false, was_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      if (!field.empty() || was_quoted) throw std::runtime_error("a stray quote");
      quoted = was_quoted = true;
    } else if (c == ',' || c == '\r') {
      rows.back().push_back(std::exchange(field, ""));
      was_quoted = false;
    } else if (c == '\n') {
      rows.emplace_back();
    } else {
      field += c;
    }
  }
  rows.pop_back();
  return rows;
}

std::map<std::string, std::string> RowOf(const Rows& rows, size_t row) {
  std::map<std::string, std::string> named;
  for (size_t i = 0; i < rows[0].size(); ++i) named[rows[0][i]] = rows.at(row).at(i);
  return named;
}

// As perf_analyzer's report_writer.cc writes them, with --verbose-csv's first further column.
const std::vector<std::string> kPerfAnalyzer = {"Inferences/Second",
                                                "Client Send",
                                                "Network+Server Send/Recv",
                                                "Server Queue",
                                                "Server Compute Input",
                                                "Server Compute Infer",
                                                "Server Compute Output",
                                                "Client Recv",
                                                "p50 latency",
                                                "p90 latency",
                                                "p95 latency",
                                                "p99 latency",
                                                "Avg latency"};

TEST(CsvTest, BeginsWithTheColumnsOfPerfAnalyzer) {
  RunData run = SimulateRun({.seconds = 2});
  for (const bool open : {true, false}) {
    run.open_loop = open;
    const std::vector<std::string> head = ReadCsv(CsvText(run))[0];
    ASSERT_GT(head.size(), kPerfAnalyzer.size());
    EXPECT_EQ(head[0], open ? "Request Rate" : "Concurrency");
    EXPECT_TRUE(std::equal(kPerfAnalyzer.begin(), kPerfAnalyzer.end(), head.begin() + 1));
    EXPECT_EQ(std::set<std::string>(head.begin(), head.end()).size(), head.size()) << "twice";
  }
}

TEST(CsvTest, HasARowForEachClassAndEndpointInOrderOfThroughput) {
  const Rows rows = ReadCsv(CsvText(SimulateRun({.seconds = 5, .classes = 3})));
  ASSERT_EQ(rows.size(), 1u + 3 * 2);
  std::set<std::string> seen;
  double before = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), rows[0].size());
    const auto row = RowOf(rows, i);
    seen.insert(row.at("Class") + " at " + row.at("Endpoint"));
    EXPECT_GE(std::stod(row.at("Inferences/Second")), before);
    before = std::stod(row.at("Inferences/Second"));
  }
  EXPECT_EQ(seen.size(), 6u);
}

RunData OneCell() {
  RunData run;
  run.classes = {"only"};
  run.endpoints = {"here:1"};
  run.objectives.resize(1);
  run.asked_seconds = 10;
  run.cells.assign(1, std::vector<Cell>(1));
  Cell& cell = run.cells[0][0];
  for (int i = 0; i < 20; ++i) {
    cell.service.Record(2'000'000);
    cell.intended.Record(3'000'000);
    cell.stages.server.Record(1'500'000);
    cell.stages.queue.Record(400'000);
    cell.stages.copy_in.Record(100'000);
    cell.stages.compute.Record(700'000);
    cell.stages.copy_out.Record(50'000);
  }
  cell.outcomes[static_cast<int>(Outcome::kOk)] = 20;
  cell.outcomes[static_cast<int>(Outcome::kRefused)] = 5;
  cell.sequences = 80;
  cell.good = 19;
  return run;
}

TEST(CsvTest, ColumnsMeanWhatPerfAnalyzersMean) {
  const RunData run = OneCell();
  const auto row = RowOf(ReadCsv(CsvText(run)), 1);
  EXPECT_EQ(row.at("Request Rate"), "2.5");
  EXPECT_EQ(row.at("Inferences/Second"), "8");  // of sequences, as it counts a batch's
  EXPECT_EQ(row.at("Server Queue"), "400");
  EXPECT_EQ(row.at("Server Compute Input"), "100");
  EXPECT_EQ(row.at("Server Compute Infer"), "700");
  EXPECT_EQ(row.at("Server Compute Output"), "50");
  EXPECT_EQ(row.at("Network+Server Send/Recv"), "750");  // 2000 less the four above
  EXPECT_EQ(row.at("Avg latency"), "2000");
  EXPECT_NEAR(std::stod(row.at("p50 latency")), 2000, 2);  // from sending
  EXPECT_NEAR(std::stod(row.at("p50 intended us")), 3000, 3);
  EXPECT_EQ(row.at("Planned"), "25");
  EXPECT_EQ(row.at("OK"), "20");
  EXPECT_EQ(row.at("Refused"), "5");
  EXPECT_EQ(row.at("Good/Second"), "1.9");
}

TEST(CsvTest, AClosedLoopsConcurrencyIsTheMeanInFlight) {
  RunData run = OneCell();
  run.open_loop = false;
  // Two a second for 2 ms each.
  EXPECT_EQ(RowOf(ReadCsv(CsvText(run)), 1).at("Concurrency"), "0.004");
}

TEST(CsvTest, WhatTheServerDidNotTellIsEmptyAndNotZero) {
  RunData run = OneCell();
  run.cells[0][0].stages = {};
  const auto row = RowOf(ReadCsv(CsvText(run)), 1);
  EXPECT_EQ(row.at("Server Queue"), "");
  EXPECT_EQ(row.at("Network+Server Send/Recv"), "");
  EXPECT_NE(row.at("p99 latency"), "");
}

TEST(CsvTest, QuotesHostileNamesAndDisarmsFormulas) {
  RunData run = OneCell();
  run.classes = {"a,b \"c\"\nd"};
  run.endpoints = {"=HYPERLINK(\"x\")"};
  const auto row = RowOf(ReadCsv(CsvText(run)), 1);
  EXPECT_EQ(row.at("Class"), "a,b \"c\"\nd");
  EXPECT_EQ(row.at("Endpoint"), "'=HYPERLINK(\"x\")");
}

TEST(CsvTest, ARunOfNothingHasNoRows) { EXPECT_EQ(CsvText(RunData()), ""); }

}  // namespace
}  // namespace castor::load
