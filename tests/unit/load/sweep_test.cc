#include "client/load/search/sweep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/load/md1.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Md1Server;

const std::atomic<bool> kGoOn = false;

class SweepTest : public ::testing::Test {
 protected:
  SweepTest() {
    workload_.classes.resize(2);
    workload_.classes[1].call = EncodeSpec{};
    workload_.load = OpenLoop{};
  }
  ~SweepTest() override { std::filesystem::remove(path_); }

  Sweep Make(const std::vector<std::string>& vary) {
    std::vector<Vary> parsed;
    for (const std::string& text : vary) parsed.push_back(ParseVary(text));
    return MakeSweep(workload_, "seed = 1\n", parsed);
  }

  // An M/D/1 server that takes `length` us for each request.
  RunData RunCellOf(const Workload& workload) {
    const auto& attend = std::get<AttendSpec>(workload.classes[0].call);
    const double us = static_cast<double>(std::get<FixedLength>(attend.lengths).length);
    const double rate = std::get<FlatRate>(std::get<OpenLoop>(workload.load).rate).rate;
    Md1Server server(us / 1e6, {.quantile = 0.99, .limit = milliseconds(50)}, ++runs_);
    return server.Run(rate, seconds(20));
  }

  Workload workload_;
  uint64_t runs_ = 0;
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("sweep_test_" + std::to_string(getpid())))
          .string();
};

std::string Refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_F(SweepTest, EveryCombinationIsACellAndRatesRiseAsNumbers) {
  const Sweep sweep = Make({"kernel=vanilla,clustered", "rate=100,9,20.5", "length=512,64"});
  ASSERT_EQ(sweep.cells.size(), 12u);
  std::vector<std::string> seen;
  for (const SweepCell& cell : sweep.cells) {
    ASSERT_EQ(cell.series.size(), 2u);
    seen.push_back(cell.series[0].second + " " + cell.series[1].second + " " + cell.load);
  }
  EXPECT_EQ(seen[0], "vanilla 512 9");
  EXPECT_EQ(seen[1], "vanilla 512 20.5");
  EXPECT_EQ(seen[2], "vanilla 512 100");
  EXPECT_EQ(seen[3], "vanilla 64 9");
  EXPECT_EQ(seen[11], "clustered 64 100");
}

TEST_F(SweepTest, ACellsWorkloadHasItsParametersInEveryClass) {
  const Sweep sweep = Make({"rate=7", "kernel=clustered", "length=99", "sequences=3", "clusters=25",
                            "heads=2", "head_dim=48"});
  ASSERT_EQ(sweep.cells.size(), 1u);
  const Workload set = WorkloadOf(workload_, sweep.cells[0]);
  const auto& attend = std::get<AttendSpec>(set.classes[0].call);
  const auto& encode = std::get<EncodeSpec>(set.classes[1].call);
  EXPECT_EQ(std::get<FlatRate>(std::get<OpenLoop>(set.load).rate).rate, 7);
  EXPECT_EQ(attend.kernel.kernel, "clustered");
  EXPECT_EQ(encode.kernel.kernel, "clustered");
  EXPECT_EQ(attend.kernel.clusters, 25);
  EXPECT_EQ(std::get<FixedLength>(attend.lengths).length, 99);
  EXPECT_EQ(std::get<FixedLength>(encode.lengths).length, 99);
  EXPECT_EQ(std::get<FixedLength>(encode.sequences).length, 3);
  EXPECT_EQ(attend.heads, 2);
  EXPECT_EQ(attend.head_dim, 48);
}

TEST_F(SweepTest, RefusalsSayWhatIsWrong) {
  EXPECT_NE(Refusal([&] { ParseVary("rate"); }).find("rate=50,100,200"), std::string::npos);
  EXPECT_NE(Refusal([&] { ParseVary("speed=1"); }).find("length (tokens"), std::string::npos);
  EXPECT_NE(Refusal([&] { ParseVary("rate=1,,2"); }).find("empty"), std::string::npos);
  EXPECT_NE(Refusal([&] { ParseVary("rate=1,1"); }).find("twice"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"rate=1", "rate=2"}); }).find("twice"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"rate=1,fast"}); }).find("'fast'"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"rate=-1"}); }).find("'-1'"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"kernel=flash"}); }).find("improved-clustered"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"callers=4"}); }).find("no closed loop"), std::string::npos);
  EXPECT_NE(Refusal([&] { Make({"rate=4", "callers=4"}); }).find("either"), std::string::npos);
  workload_.classes.erase(workload_.classes.begin());
  EXPECT_NE(Refusal([&] { Make({"heads=4"}); }).find("no class"), std::string::npos);
  std::string many = "rate=";
  for (int i = 1; i <= 101; ++i) many += (i == 1 ? "" : ",") + std::to_string(i);
  std::string lengths = "length=" + many.substr(5);
  EXPECT_NE(Refusal([&] { Make({many, lengths}); }).find("10,000"), std::string::npos);
}

TEST_F(SweepTest, RaisingTheRateEndsWhereASeriesIsSaturated) {
  // 2 ms each: 500/s. 200 us each: 5,000/s.
  Sweep sweep = Make({"rate=100,400,800,1600,3200", "length=2000,200"});
  EXPECT_TRUE(RunSweep(
      workload_, [&](const Workload& workload, const SweepCell&) { return RunCellOf(workload); },
      testing::JudgeByCounts, "", &sweep, {}, kGoOn));
  std::vector<CellState> states;
  for (const SweepCell& cell : sweep.cells) states.push_back(cell.state);
  const auto done = CellState::kDone;
  const auto skipped = CellState::kSkipped;
  EXPECT_EQ(states, (std::vector<CellState>{done, done, done, skipped, skipped,  //
                                            done, done, done, done, done}));
  EXPECT_NE(sweep.cells[3].why.find("a lower rate"), std::string::npos) << sweep.cells[3].why;
  const std::vector<Curve> curves = CurvesOf(sweep);
  ASSERT_EQ(curves.size(), 2u);
  ASSERT_EQ(curves[0].points.size(), 3u);
  EXPECT_EQ(curves[0].points[1].rate, 400);
  EXPECT_NEAR(curves[0].points[1].throughput, 400, 20);
  EXPECT_GE(curves[0].points[1].p99_ns, curves[0].points[0].p99_ns);
  EXPECT_GT(curves[0].points[2].worst_goal, 5);
  EXPECT_LT(curves[0].points[2].goodput, 0.5 * curves[0].points[2].throughput);
}

TEST(Saturation, IsThroughputOrGoodputOrGoalsMissedByFar) {
  const CurvePoint fine{.rate = 100, .throughput = 99, .goodput = 98, .worst_goal = 0.5};
  EXPECT_EQ(Saturation({}), "");
  EXPECT_EQ(Saturation({fine}), "");
  CurvePoint slow = fine;
  slow.rate = 200;
  slow.throughput = 170;
  slow.goodput = 160;
  EXPECT_NE(Saturation({fine, slow}).find("85 %"), std::string::npos);
  slow.cancelled = 25;  // they were not to be answered
  EXPECT_EQ(Saturation({fine, slow}), "");
  const CurvePoint late{.rate = 200, .throughput = 199, .goodput = 80, .worst_goal = 3};
  EXPECT_NE(Saturation({fine, late}).find("goodput fell"), std::string::npos);
  const CurvePoint missed{.rate = 200, .throughput = 199, .goodput = 180, .worst_goal = 9};
  EXPECT_NE(Saturation({fine, missed}).find("missed by far"), std::string::npos);
}

TEST_F(SweepTest, AnInterruptedSweepGoesOnWhereItWas) {
  const std::vector<std::string> vary = {"rate=100,400,800,1600", "length=2000,200"};
  std::atomic<bool> stop = false;
  std::vector<std::string> ran;
  const RunCell run = [&](const Workload& workload, const SweepCell& cell) {
    ran.push_back(cell.series[0].second + " " + cell.load);
    if (ran.size() == 3) stop = true;  // in the middle of this one
    return RunCellOf(workload);
  };
  Sweep sweep = Make(vary);
  EXPECT_FALSE(RunSweep(workload_, run, testing::JudgeByCounts, path_, &sweep, {}, stop));

  Sweep resumed = ResumeSweep(path_, Make(vary));
  stop = false;
  int told = 0;
  EXPECT_TRUE(RunSweep(
      workload_, run, testing::JudgeByCounts, path_, &resumed,
      [&](const Sweep&, const SweepCell&) { ++told; }, stop));
  EXPECT_EQ(told, 6);  // two were done
  const std::vector<std::string> expected = {"2000 100", "2000 400", "2000 800", "2000 800",
                                             "200 100",  "200 400",  "200 800",  "200 1600"};
  EXPECT_EQ(ran, expected);

  // What is in the file is what is in memory.
  const Sweep loaded = LoadSweep(path_);
  EXPECT_EQ(ToJson(loaded).dump(), ToJson(resumed).dump());
  EXPECT_EQ(CurvesOf(loaded)[1].points[2].p99_ns, CurvesOf(resumed)[1].points[2].p99_ns);
  // Nothing is left to do.
  Sweep again = ResumeSweep(path_, Make(vary));
  ran.clear();
  EXPECT_TRUE(RunSweep(workload_, run, testing::JudgeByCounts, path_, &again, {}, kGoOn));
  EXPECT_TRUE(ran.empty());
}

TEST_F(SweepTest, WhereTheClientWasTheLimitIsNoSaturatedServer) {
  // One bad moment at 400; from 1,600 on, the client never keeps up.
  const Finding lagged{"client-lag", false, "p99 of the client's lag is 3 s"};
  bool bad_moment = true;
  const JudgeRun judge = [&](const RunData& run) {
    Verdict verdict = testing::JudgeByCounts(run);
    const bool bad = run.asked_rate >= 1600 || (run.asked_rate == 400 && bad_moment);
    if (run.asked_rate == 400) bad_moment = false;
    if (bad) verdict.validity.push_back(lagged);
    return verdict;
  };
  Sweep sweep = Make({"rate=100,400,800,1600,3200,4000", "length=20"});
  const RunCell run = [&](const Workload& workload, const SweepCell&) {
    return RunCellOf(workload);
  };
  EXPECT_TRUE(RunSweep(workload_, run, judge, path_, &sweep, {}, kGoOn));
  EXPECT_EQ(runs_, 1u + 2 + 1 + 2 + 2);
  std::vector<CellState> states;
  for (const SweepCell& cell : LoadSweep(path_).cells) states.push_back(cell.state);
  EXPECT_EQ(states, (std::vector<CellState>{CellState::kDone, CellState::kDone, CellState::kDone,
                                            CellState::kInvalid, CellState::kInvalid,
                                            CellState::kSkipped}));
  EXPECT_NE(sweep.cells[3].why.find("client-lag"), std::string::npos) << sweep.cells[3].why;
  EXPECT_EQ(CurvesOf(sweep)[0].points.size(), 3u);
}

TEST(ClientsFault, IsWhatSaysNothingOfTheServer) {
  Verdict verdict;
  verdict.validity = {{"duration", false, "a"},
                      {"early-stopping", false, "b"},
                      {"stationary", false, "c"},
                      {"client-dropped", false, "d"},
                      {"client-cpu", true, "e"}};
  EXPECT_EQ(ClientsFault(verdict), "");
  verdict.validity.push_back({"client-lag", false, "f"});
  verdict.validity.push_back({"counts-agree", false, "g"});
  EXPECT_EQ(ClientsFault(verdict), "client-lag: f; counts-agree: g");
}

TEST_F(SweepTest, ResumesNoOtherSweep) {
  SaveSweep(Make({"rate=1,2"}), path_);
  EXPECT_NE(Refusal([&] { ResumeSweep(path_, Make({"rate=1,3"})); }).find("other parameters"),
            std::string::npos);
  Sweep other = Make({"rate=1,2"});
  other.workload_toml = "seed = 2\n";
  EXPECT_NE(Refusal([&] { ResumeSweep(path_, other); }).find("another workload"),
            std::string::npos);
  EXPECT_NE(Refusal([&] { LoadSweep(path_ + "missing"); }).find("missing"), std::string::npos);
  for (const char* text : {"", "[1]", "{}", R"({"schema": "castor-load-sweep/9"})",
                           R"({"schema": "castor-load-sweep/1", "workload": 3})"}) {
    std::ofstream(path_) << text;
    EXPECT_NE(Refusal([&] { LoadSweep(path_); }).find(path_), std::string::npos) << text;
  }
}

TEST(MakeSweep, KeepsNoTokenInWhatIsSaved) {
  Workload workload;
  workload.classes.resize(1);
  workload.load = OpenLoop{};
  const Sweep sweep =
      MakeSweep(workload, "[[class]]\nname = \"a\"\ntoken = \"s3cret\"\n", {ParseVary("rate=1,2")});
  EXPECT_NE(sweep.workload_toml.find("name"), std::string::npos);
  EXPECT_EQ(ToJson(sweep).dump().find("s3cret"), std::string::npos);
}

}  // namespace
}  // namespace castor::load
