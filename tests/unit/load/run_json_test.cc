#include "client/load/measure/run_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/redact.h"
#include "tests/support/seeded.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RunJsonTest : public ::testing::Test, protected Seeded {};

std::string Refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "taken";
}

TEST_F(RunJsonTest, ASavedRunIsTheRun) {
  for (int i = 0; i < 5; ++i) {
    const RunData run = RandomRun(random_);
    const TemporaryFolder folder;
    SaveRun(folder / "run.json", run);
    const RunData loaded = LoadRun(folder / "run.json");
    // What is written again is the same to the last digit; and what is not written is compared
    // here.
    EXPECT_EQ(FormatRun(ToJson(loaded)), FormatRun(ToJson(run)));
    for (size_t cls = 0; cls < 2; ++cls) {
      for (size_t endpoint = 0; endpoint < 3; ++endpoint) {
        const Histogram &a = run.cells[cls][endpoint].intended,
                        &b = loaded.cells[cls][endpoint].intended;
        EXPECT_EQ(a.ValueAt(0.99), b.ValueAt(0.99));
        EXPECT_EQ(a.mean(), b.mean());
      }
    }
    EXPECT_EQ(loaded.servers[1].after, run.servers[1].after);
    // Saved runs merge as runs do.
    RunData merged = run, merged_after = loaded;
    merged.Merge(run);
    merged_after.Merge(loaded);
    EXPECT_EQ(ToJson(merged_after), ToJson(merged));
  }
}

TEST_F(RunJsonTest, FiguresAreThereForThoseWithoutHistograms) {
  RunData run = EmptyRun(10);
  for (int i = 1; i <= 100; ++i) {
    Count({.second = i % 10, .latency = std::chrono::milliseconds(i)}, run);
  }
  Count({.outcome = Outcome::kRefused}, run, 100);
  const Json summary = ToJson(run)["summary"];
  EXPECT_EQ(summary["classes"]["short"], summary["total"]);
  const Json& figures = summary["total"];
  EXPECT_EQ(figures["planned"], 200);
  EXPECT_EQ(figures["rate"], 20);
  EXPECT_EQ(figures["ok_rate"], 10);
  EXPECT_EQ(figures["goodput"], 5) << "50 ms is the limit";
  EXPECT_EQ(figures["error_share"], 0.5);
  EXPECT_NEAR(figures["intended"]["p50_ms"].get<double>(), 50, 0.05);
  EXPECT_NEAR(figures["intended"]["p99_ms"].get<double>(), 99, 0.1);
  EXPECT_EQ(figures["intended"]["max_ms"], 100);
  EXPECT_EQ(figures["intended"]["mean_ms"], 50.5);
  EXPECT_NEAR(figures["lag"]["max_ms"].get<double>(), 0.02, 1e-9);
}

TEST_F(RunJsonTest, TheVerdictIsWrittenWhenItIsGiven) {
  const RunData run = EmptyRun(5);
  EXPECT_FALSE(ToJson(run).contains("verdict"));
  const Verdict verdict = Judge(run);
  const Json json = ToJson(run, &verdict);
  EXPECT_EQ(json["verdict"]["valid"], false);
  EXPECT_EQ(json["verdict"]["validity"][0]["rule"], "duration");
  EXPECT_EQ(json["verdict"]["validity"].size(), verdict.validity.size());
  EXPECT_EQ(ToJson(FromJson(json)), ToJson(run));
}

TEST_F(RunJsonTest, EveryMissingOrForeignFieldIsNamed) {
  const Json good = ToJson(RandomRun(random_));
  // Every value that is read, at any depth: first left out, then replaced by what it cannot be.
  std::function<void(const Json::json_pointer&)> visit = [&](const Json::json_pointer& at) {
    const Json& value = good[at];
    if (value.is_object() && !at.empty() && at.back() == "summary") return;
    if (value.is_object()) {
      for (const auto& [key, child] : value.items()) {
        const bool named_by_users =
            !at.empty() && (at.back() == "kernels" || at.back() == "messages" ||
                            at.back() == "before" || at.back() == "after");
        if (!named_by_users && key != "summary") {
          Json without = good;
          without[at].erase(key);
          EXPECT_THAT(Refusal([&] { FromJson(without); }),
                      HasSubstr(key == "format" ? "no saved run" : key + " is missing"))
              << at / key;
        }
        visit(at / key);
      }
    } else if (value.is_array() && !value.empty()) {
      visit(at / 0);
    }
    if (at.empty()) return;
    for (const Json& wrong : {Json(true), Json(-1), Json({{"a", 1}}), Json({Json::array()}),
                              Json("text"), Json(1.5), Json(1e300), Json(UINT64_MAX)}) {
      if (wrong.type() == value.type()) continue;
      if (value.is_number() && wrong.is_number()) continue;
      Json changed = good;
      changed[at] = wrong;
      EXPECT_NE(Refusal([&] { FromJson(changed); }), "taken") << at << " as " << wrong;
    }
  };
  visit(Json::json_pointer());
}

TEST_F(RunJsonTest, HistogramsThatCannotBeAreRefused) {
  RunData run = EmptyRun(1);
  for (int i = 1; i <= 10; ++i) Count({.latency = std::chrono::milliseconds(i)}, run);
  const Json good = ToJson(run);
  ASSERT_EQ(Refusal([&] { FromJson(good); }), "taken");
  const std::pair<const char*, std::function<void(Json&)>> cases[] = {
      {"counts must hold whole numbers from 1", [](Json& h) { h["counts"][3] = 0; }},
      {"counts must hold whole numbers from 1", [](Json& h) { h["counts"][3] = -1; }},
      {"counts must hold whole numbers from 1", [](Json& h) { h["counts"][3] = INT64_MAX; }},
      {"counts must hold whole numbers from 1", [](Json& h) { h["counts"][3] = UINT64_MAX; }},
      {"counts must hold whole numbers from 1", [](Json& h) { h["counts"][3] = 1.0; }},
      {"counts must be as long as lowest_ns", [](Json& h) { h["counts"].push_back(1); }},
      {"count must be the sum of counts", [](Json& h) { h["count"] = 11; }},
      {"lowest_ns must hold lowest values", [](Json& h) { h["lowest_ns"][3] = 4'000'001; }},
      {"lowest_ns must hold lowest values", [](Json& h) { h["lowest_ns"][3] = -512; }},
      {"lowest_ns must hold lowest values", [](Json& h) { h["lowest_ns"][3] = 1ull << 63; }},
      {"above the one before (at its index 3)",
       [](Json& h) { h["lowest_ns"][3] = h["lowest_ns"][2]; }},
      {"must be an array of at most 24576", [](Json& h) { h["lowest_ns"] = Json(100'000, 1); }},
      {"min_ns in its first bucket", [](Json& h) { h["min_ns"] = 2'000'000; }},
      {"max_ns in its last", [](Json& h) { h["max_ns"] = 11'000'000; }},
      {"max_ns must be a whole number from 1000000", [](Json& h) { h["max_ns"] = 5; }},
      {"sum_ns must be a sum", [](Json& h) { h["sum_ns"] = 5; }},
      {"sum_ns must be a sum", [](Json& h) { h["sum_ns"] = INT64_MAX; }},
      {"is empty, so its figures must be 0",
       [](Json& h) {
         h["counts"] = h["lowest_ns"] = Json::array();
         h["count"] = 0;
       }},
  };
  for (const auto& [message, change] : cases) {
    Json json = good;
    change(json["cells"][0][0]["intended"]);
    EXPECT_THAT(Refusal([&] { FromJson(json); }),
                AllOf(HasSubstr("cells[0][0].intended"), HasSubstr(message)));
  }
}

TEST_F(RunJsonTest, FiguresThatCannotBeAreRefused) {
  const Json good = ToJson(RandomRun(random_));
  const std::pair<const char*, std::function<void(Json&)>> cases[] = {
      {"no saved run", [](Json& j) { j = Json::array(); }},
      {"no saved run", [](Json& j) { j["format"] = "ghz"; }},
      {"version must be 1: a newer", [](Json& j) { j["version"] = 2; }},
      {"objectives must be as many as classes", [](Json& j) { j["objectives"].erase(1); }},
      {"cells must be as many as classes", [](Json& j) { j["cells"].erase(1); }},
      {"cells[2] belongs to no class", [](Json& j) { j["cells"].push_back(j["cells"][0]); }},
      {"cells[0] must have one element for each", [](Json& j) { j["cells"][0].erase(1); }},
      {"seconds[2] must have one element for each", [](Json& j) { j["seconds"][2].erase(0); }},
      {"cells[0][1].good must be", [](Json& j) { j["cells"][0][1]["good"] = 1000; }},
      {"above_goal[0] must be", [](Json& j) { j["cells"][0][0]["above_goal"][0] = 100'000; }},
      {"above_goal must have", [](Json& j) { j["cells"][0][0]["above_goal"].erase(0); }},
      {"outcomes.ok must be", [](Json& j) { j["cells"][0][0]["outcomes"]["ok"] = INT64_MAX; }},
      {"max_error_share must be a number from 0 to 1",
       [](Json& j) { j["objectives"][1]["max_error_share"] = 2; }},
      {"quantile must lie between 0 and 1",
       [](Json& j) { j["objectives"][0]["latencies"][0]["quantile"] = 1; }},
      {"cells must be at most 4096",
       [](Json& j) { j["endpoints"] = Json(1024, "a"), j["classes"] = Json(200, "b"); }},
      {"endpoints must have at most 1024", [](Json& j) { j["endpoints"] = Json(2000, "a"); }},
  };
  for (const auto& [message, change] : cases) {
    Json json = good;
    change(json);
    EXPECT_THAT(Refusal([&] { FromJson(json); }), HasSubstr(message));
  }
}

TEST_F(RunJsonTest, HostileTextIsRefusedEarly) {
  EXPECT_THAT(Refusal([] { ParseRun(""); }), HasSubstr("this is no JSON"));
  EXPECT_THAT(Refusal([] { ParseRun("{\"format\": "); }), HasSubstr("this is no JSON"));
  EXPECT_THAT(Refusal([] { ParseRun(std::string(1'000'000, '[')); }), HasSubstr("nested deeper"));
  std::string many = "{";
  for (int i = 0; i < 20'000; ++i) many += "\"" + std::to_string(i) + "\":1,";
  EXPECT_THAT(Refusal([&] { ParseRun(many + "\"x\":1}"); }), HasSubstr("more members"));
  EXPECT_THAT(Refusal([] { LoadRun("/no/such/run.json"); }), HasSubstr("/no/such/run.json"));
  // Any text made from a run by changing a few bytes is read or refused.
  const std::string text = FormatRun(ToJson(RandomRun(random_)));
  for (int i = 0; i < 200; ++i) {
    std::string changed = text;
    for (int k = UpTo(3); k > 0; --k) {
      changed[static_cast<size_t>(Uniform(0, static_cast<int64_t>(text.size()) - 1))] =
          "0123456789-\"{}[],:e."[random_() % 20];
    }
    Refusal([&] { ParseRun(changed); });
  }
}

TEST_F(RunJsonTest, MessagesThatAreNoUtf8AreWritten) {
  RunData run = EmptyRun(1);
  run.cells[0][0].messages["\xff\xfe"] = 1;
  EXPECT_EQ(Refusal([&] { ParseRun(FormatRun(ToJson(run))); }), "taken");
}

TEST_F(RunJsonTest, TokensAreNotSaved) {
  const std::string toml =
      "# π: token = \"stays, a comment\"\n"
      "[[class]]\r\nname = \"ü\"\ntoken = \"s3cret-1\" # why\n"
      "[class.more]\nx = {\"é\" = 'ü', token = 's3cret-2', y = 1}\n"
      "a.token = \"\"\"\ns3cret\n-3\"\"\"\nlist = [{token = 5}, {\"token\" = \"s3cret-4\"}]\n"
      "tokens = 128\n";
  RunData run = EmptyRun(1);
  run.workload_toml = toml;
  const std::string saved = ToJson(run)["workload_toml"];
  EXPECT_EQ(saved,
            "# π: token = \"stays, a comment\"\n"
            "[[class]]\r\nname = \"ü\"\ntoken = \"(redacted)\" # why\n"
            "[class.more]\nx = {\"é\" = 'ü', token = \"(redacted)\", y = 1}\n"
            "a.token = \"(redacted)\"\nlist = [{token = \"(redacted)\"}, {\"token\" = "
            "\"(redacted)\"}]\n"
            "tokens = 128\n");
  EXPECT_EQ(RedactTokens(saved), saved);
  const std::string plain = "[[class]]\nname = \"x\"\n";
  EXPECT_EQ(RedactTokens(plain), plain);
  EXPECT_THAT(RedactTokens("token = s3cret # no TOML"), Not(HasSubstr("s3cret")));
  EXPECT_EQ(RedactTokens(""), "");
}

}  // namespace
}  // namespace castor::load
