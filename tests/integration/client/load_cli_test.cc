// castor-load as its users run it, against a real server. The tests do not judge figures that
// depend on the machine's speed (lag, latency), so a run may be valid or not.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/integration/client/cli_fixture.h"
#include "tests/support/words.h"

namespace castor::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kMet = 0, kServerError = 1, kUsage = 2, kInvalid = 4;

class LoadCliTest : public CliTest {
 protected:
  static std::vector<std::string> Small(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "run",    "--attend",  "4-16",  "--heads",        "1",  "--head-dim", "8", "-d",
        "1500ms", "--warm-up", "200ms", "--min-duration", "1s", "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // A saved run that is complete, whether the machine kept up or not.
  static Json Measured(std::vector<std::string> more, const std::string& name = "run.json") {
    more.insert(more.end(), {"--json", InFolder(name)});
    const Outcome outcome = Run(Small(more));
    EXPECT_THAT(outcome.exit_code, AnyOf(kMet, kInvalid)) << outcome.out << outcome.err;
    return Json::parse(ReadFile(InFolder(name)), nullptr, /*allow_exceptions=*/false);
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
  EXPECT_TRUE(Passed(run, "duration"));
  EXPECT_GT(OfAll(run, "ok"), 300);
  EXPECT_EQ(OfAll(run, "failed"), 0);
}

// Both outcomes are certain on any machine: cancelled requests compute for far longer than they are
// let, and hasty ones cannot be answered within their millisecond.
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
  EXPECT_GT(OfAll(run, "cancelled"), 0);
  EXPECT_GT(OfAll(run, "refused") + OfAll(run, "expired"), 0);
  EXPECT_GT(OfAll(run, "ok"), 0);
  EXPECT_EQ(OfAll(run, "failed"), 0);
}

// The server chose the port of its metrics, and reports it.
TEST_F(LoadCliTest, TheCountsAreThoseOfTheServerThatWasLoaded) {
  const Json run = Measured({"--rate", "100"});
  EXPECT_TRUE(Passed(run, "counts-agree"));
  EXPECT_EQ(run["servers"][0]["metrics"], metrics_address_);
  const Json blind = Measured({"--rate", "100", "--no-metrics"});
  EXPECT_EQ(blind["servers"][0]["metrics"], "");
}

TEST_F(LoadCliTest, SharesAreAddedUpByReport) {
  const Json alone = Measured({"--rate", "200", "--seed", "7"});
  for (const char* share : {"0/2", "1/2"}) {
    (void)Measured({"--rate", "200", "--seed", "7", "--share", share},
                   std::string("share") + share[0] + ".json");
  }
  const std::string first = InFolder("share0.json"), second = InFolder("share1.json");
  EXPECT_THAT(Run({"report", first, second, "--json", InFolder("sum.json")}).exit_code,
              AnyOf(kMet, kInvalid));
  const Json sum = Json::parse(ReadFile(InFolder("sum.json")), nullptr, false);
  EXPECT_EQ(OfAll(sum, "ok"), OfAll(alone, "ok"));
  EXPECT_THAT(ErrorOf(kUsage, {"report", first, first}), HasSubstr("0/2 is there twice"));
}

TEST_F(LoadCliTest, RunsAreComparedAndGated) {
  (void)Measured({"--rate", "100", "--html", InFolder("run.html")});
  EXPECT_THAT(ReadFile(InFolder("run.html")),
              AllOf(HasSubstr("</html>"), HasSubstr("uniform = [ 4, 16 ]"), HasSubstr("cpu: "),
                    HasSubstr(HaveModel() ? "models minilm" : "models ")));
  const std::string file = InFolder("run.json");
  // A second and a half is too short to tell, so the gate does not pass.
  EXPECT_EQ(Run({"compare", file, file, "--fail-on", "p50 > +50%"}).exit_code, kInvalid);
  const Outcome compared = Run({"compare", file, file});
  EXPECT_EQ(compared.exit_code, kInvalid);
  EXPECT_THAT(compared.out, AllOf(HasSubstr("unclear"), HasSubstr("is INVALID"),
                                  Not(HasSubstr("no change")), Not(HasSubstr("improvement"))));
  EXPECT_THAT(ErrorOf(kUsage, {"compare", file, file, "--fail-on", "nobody: p99 > +5%"}),
              HasSubstr("nobody"));
  EXPECT_THAT(Run({"report", file}).exit_code, AnyOf(kMet, kInvalid));
}

TEST_F(LoadCliTest, ASweepAndASearchEnd) {
  const Outcome sweep =
      Run({"sweep", "--attend", "4", "--heads", "1", "--head-dim", "8", "-d", "300ms", "--warm-up",
           "0s", "--vary", "rate=20,40", "-q", "--json", InFolder("sweep.json")});
  EXPECT_EQ(sweep.exit_code, kMet) << sweep.err;
  const Json saved = Json::parse(ReadFile(InFolder("sweep.json")), nullptr, false);
  EXPECT_EQ(saved["cells"].size(), 2U);
  EXPECT_EQ(saved["cells"][0]["few_requests"], true);
  // A busy machine makes the runs invalid, which says more.
  EXPECT_THAT(sweep.out, AnyOf(HasSubstr("p99 of only "), HasSubstr("INVALID")));
  EXPECT_THAT(ErrorOf(kUsage, {"sweep", "--attend", "4", "--vary", "wheels=3"}),
              HasSubstr("wheels"));
  std::vector<std::string> arguments = testing::Words(
      "find-rate --attend 4 --heads 1 --head-dim 8 --start-rate 40 --probe 300ms "
      "--confirmation 300ms --max-time 1s --warm-up 0s --min-duration 100ms -q");
  arguments.insert(arguments.end(), {"--objective", "p50 <= 1ns"});
  const Outcome search = Run(arguments);
  EXPECT_THAT(search.exit_code, AnyOf(3, kInvalid)) << search.out << search.err;
  EXPECT_THAT(search.err, AllOf(HasSubstr("took longer than"), HasSubstr("at most 0:01")));
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
