// Saved runs: nothing is lost, shares add up, and no file breaks the reader.
#include "client/load/results/run_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;

RunData FullRun() {
  RunData run = GoodRun(12);
  Cell& cell = run.cells[0][0];
  cell.kernels = {{"vanilla", 7}};
  cell.messages = {{"the queue is \"full\"\n", 3}};
  cell.stages.queue.Record(5'000'000, 3);
  cell.verified = {.equal = 5, .different = 1};
  run.workload = "[load]\nrate = 5\n";
  run.servers[0] = {.metrics = "127.0.0.1:9464", .counted = {{"OK", 1200}}, .calls = {1200}};
  run.server_setting = "models minilm; cpu: a processor";
  run.seed = UINT64_MAX;
  return run;
}

std::string TextOf(const RunData& run) { return FormatRun(run, Judge(run)); }

std::string ErrorOf(const std::string& text) {
  try {
    (void)ParseRun(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(RunJson, LosesNothing) {
  const RunData run = FullRun();
  const std::string text = TextOf(run);
  EXPECT_EQ(TextOf(ParseRun(text)), text);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["summary"]["total"]["outcomes"]["ok"], 1200);
  EXPECT_NEAR(json["summary"]["classes"]["short"]["intended"]["p50_ms"], 10, 0.1);
  EXPECT_EQ(json["verdict"]["valid"], false) << "an answer differed";
}

TEST(RunJson, AnErrorNamesTheField) {
  const Json good = Json::parse(TextOf(FullRun()));
  const auto broken = [&](const std::function<void(Json&)>& breaks) {
    Json json = good;
    breaks(json);
    return ErrorOf(json.dump());
  };
  EXPECT_THAT(ErrorOf("[1, 2"), HasSubstr("parse error"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("not a run saved"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(broken([](Json& j) { j["version"] = 1; }), HasSubstr("version"));
  EXPECT_THAT(broken([](Json& j) { j.erase("begun"); }), HasSubstr("'begun' not found"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["good"] = "x"; }),
              HasSubstr("(/cells/0/0/good) type must be"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["counts"][0] = -1; }),
              HasSubstr("(/cells/0/0/intended) must hold counts"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["lowest_ns"][0] = 3; }),
              HasSubstr("lowest values"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["max_ns"] = 1; }),
              HasSubstr("max_ns"));
  EXPECT_THAT(broken([](Json& j) { j["cells"] = Json::array(); }), HasSubstr("cells"));
  EXPECT_THAT(broken([](Json& j) { j["clients"] = Json::array(); }), HasSubstr("clients"));
  EXPECT_THAT(broken([](Json& j) { j["seconds"][3] = Json::array(); }), HasSubstr("seconds"));
  EXPECT_THAT(broken([](Json& j) { j["objectives"][0]["latencies"][0]["quantile"] = 2; }),
              HasSubstr("quantile"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["above_goal"] = Json::array(); }),
              HasSubstr("above_goal"));
}

TEST(RunJson, SharesOfOnePlanAddUp) {
  const auto share = [](int64_t index) {
    RunData run = GoodRun(12);
    run.clients[0].share = index;
    run.clients[0].shares = 2;
    run.asked_rate = 50;
    return run;
  };
  RunData sum = share(0);
  sum.Merge(share(1));
  EXPECT_EQ(sum.Total().planned(), 2 * GoodRun(12).Total().planned());
  EXPECT_EQ(sum.asked_rate, 100);
  EXPECT_EQ(sum.clients.size(), 2U);
  EXPECT_EQ(sum.OfSecond(3).outcomes[0], 200);
  EXPECT_THROW(sum.Merge(share(1)), std::runtime_error) << "it is there already";
  RunData other = share(1);
  other.seed = 7;
  EXPECT_THROW(sum.Merge(other), std::runtime_error) << "another plan";
  EXPECT_EQ(TextOf(ParseRun(TextOf(sum))), TextOf(sum));
}

}  // namespace
}  // namespace castor::load
