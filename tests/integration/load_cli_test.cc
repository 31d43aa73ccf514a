// castor-load as its users run it, against a real server. What depends on the machine's speed (lag,
// latency) is not judged: the exit code is that of a run that is valid, or of one that is not.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/integration/cli_fixture.h"

namespace castor::cli {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kMet = 0, kServerError = 1, kUsage = 2, kInvalid = 4;

class LoadCliTest : public CliTest {
 protected:
  static std::vector<std::string> Small(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "run", "--attend",  "4-16",           "--heads",   "1",      "--head-dim",
        "8",   "-d",        "1500ms",         "--warm-up", "200ms",  "--min-duration",
        "1s",  "--metrics", metrics_address_, "-q",        "--json", InFolder("run.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // The saved run of one that must be measured whole, whether the machine kept up or not.
  static Json Measured(const std::vector<std::string>& more) {
    const Outcome outcome = Run(Small(more));
    EXPECT_THAT(outcome.exit_code, AnyOf(kMet, kInvalid)) << outcome.out << outcome.err;
    return Json::parse(ReadFile(InFolder("run.json")), nullptr, /*allow_exceptions=*/false);
  }

  // Whether a rule of validity passed.
  static bool Passed(const Json& run, const std::string& rule) {
    for (const Json& finding : run["verdict"]["validity"]) {
      if (finding["rule"] != rule) continue;
      EXPECT_TRUE(finding["passed"]) << finding["text"];
      return finding["passed"];
    }
    ADD_FAILURE() << rule << " is missing in " << run["verdict"].dump();
    return false;
  }

  static int64_t OfAll(const Json& run, const std::string& outcome) {
    return run["summary"]["total"]["outcomes"][outcome];
  }
};

TEST_F(LoadCliTest, TheServersCountsAgreeAndAnswersAreRight) {
  const Json run = Measured({"--rate", "300", "--verify", "20%"});
  EXPECT_TRUE(Passed(run, "counts-agree"));
  EXPECT_TRUE(Passed(run, "verified"));
  EXPECT_TRUE(Passed(run, "all-answered"));
  EXPECT_TRUE(Passed(run, "duration"));
  EXPECT_GT(OfAll(run, "ok"), 300);
  EXPECT_EQ(OfAll(run, "failed"), 0);
}

// Both outcomes are sure on a machine of any speed: what is cancelled has a minute, and computes
// for far longer than it is let; what is hasty cannot be answered in its millisecond.
TEST_F(LoadCliTest, CountsAgreeWithCancellationsAndRefusals) {
  WriteFile(InFolder("ended.toml"), R"(
[run]
duration = "1500ms"
warm-up = "200ms"

[load]
rate = 60

[[class]]
name = "cancelled"
kind = "attend"
heads = 1
lengths = 8192
cancel-share = 1
cancel-after = "1ms"

[[class]]
name = "hasty"
kind = "attend"
heads = 1
lengths = 4096
deadline = "1ms"

[[class]]
name = "small"
kind = "attend"
heads = 1
lengths = {uniform = [4, 16]}
)");
  const Outcome outcome =
      Run({"run", "--workload", InFolder("ended.toml"), "--min-duration", "1s", "--metrics",
           metrics_address_, "-q", "--json", InFolder("ended.json")});
  ASSERT_THAT(outcome.exit_code, AnyOf(kMet, kInvalid)) << outcome.out << outcome.err;
  const Json run = Json::parse(ReadFile(InFolder("ended.json")), nullptr, false);
  EXPECT_TRUE(Passed(run, "counts-agree"));
  EXPECT_TRUE(Passed(run, "all-answered"));
  EXPECT_GT(OfAll(run, "cancelled"), 0);
  EXPECT_GT(OfAll(run, "refused") + OfAll(run, "expired"), 0);
  EXPECT_GT(OfAll(run, "ok"), 0);
  EXPECT_EQ(OfAll(run, "failed"), 0);
}

TEST_F(LoadCliTest, TwoWorkersSendThePlanOfOne) {
  const Json alone = Measured({"--rate", "200", "--seed", "7"});
  const Json shared = Measured({"--rate", "200", "--seed", "7", "--workers", "2"});
  EXPECT_TRUE(Passed(shared, "counts-agree"));
  EXPECT_TRUE(Passed(shared, "workers"));
  EXPECT_EQ(OfAll(shared, "ok"), OfAll(alone, "ok"));
}

TEST_F(LoadCliTest, AClosedLoopAndAReplayAreLoadsLikeOthers) {
  const Json closed = Measured({"--callers", "3"});
  EXPECT_TRUE(Passed(closed, "counts-agree"));
  EXPECT_GT(OfAll(closed, "ok"), 3);

  std::string trace;
  for (int i = 0; i < 50; ++i) {
    trace += R"({"at_us":)" + std::to_string(i * 30'000) +
             R"(,"kind":"attend","sequences":[8],"heads":1,"head_dim":8,"dtype":"float32",)" +
             R"("kernel":"vanilla","deadline_ms":5000})" + "\n";
  }
  WriteFile(InFolder("trace.jsonl"), trace);
  const Outcome outcome = Run({"run", "--replay", InFolder("trace.jsonl"), "--warm-up", "0s",
                               "--duration", "1500ms", "--min-duration", "1s", "--metrics",
                               metrics_address_, "-q", "--json", InFolder("replay.json")});
  EXPECT_THAT(outcome.exit_code, AnyOf(kMet, kInvalid)) << outcome.out << outcome.err;
  const Json replay = Json::parse(ReadFile(InFolder("replay.json")), nullptr, false);
  EXPECT_EQ(OfAll(replay, "ok"), 50);
}

TEST_F(LoadCliTest, RunsAreComparedAndGated) {
  (void)Measured({"--rate", "100", "--out", InFolder("reports")});
  for (const char* file : {"run.json", "run.html", "run.csv", "run.txt", "run.hlog"}) {
    EXPECT_NE(ReadFile(InFolder("reports/") + file), "") << file;
  }
  const std::string file = InFolder("run.json");
  EXPECT_EQ(Run({"compare", file, file, "--fail-on", "p50 > +50%"}).exit_code, kMet);
  EXPECT_THAT(ErrorOf(kUsage, {"compare", file, file, "--fail-on", "nobody: p99 > +5%"}),
              HasSubstr("nobody"));
  EXPECT_THAT(Run({"report", file}).exit_code, AnyOf(kMet, kInvalid));
}

TEST_F(LoadCliTest, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(ErrorOf(kUsage, {"run", "--attend", "0"}), HasSubstr("--attend"));
  EXPECT_THAT(ErrorOf(kUsage, {"run", "--workload", InFolder("none.toml")}),
              HasSubstr("none.toml"));
  EXPECT_THAT(ErrorOf(kUsage, {"run", "--objective", "p99 <"}), HasSubstr("--objective"));
  EXPECT_THAT(ErrorOf(kUsage, {"find-rate", "--attend", "8"}), HasSubstr("objective"));
  EXPECT_THAT(ErrorOf(kServerError, {"run", "--encode", "4", "--model", "nobody", "-q"}),
              HasSubstr("nobody"));
  EXPECT_THAT(ErrorOf(kServerError, {"run", "--attend", "4", "-s", "127.0.0.1:1", "-q"}),
              HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace castor::cli
