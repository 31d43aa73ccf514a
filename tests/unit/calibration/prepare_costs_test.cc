// How an engine gets its cost model at the start: measured, or read from its file.
#include "engine/calibration/prepare_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/unit/calibration/priced_device.h"

namespace castor {
namespace {

class PrepareCostsTest : public testing::Test {
 protected:
  PrepareCostsTest() {
    options_.cost_model_file = folder_ / "costs";
    options_.cost_model_budget = std::chrono::seconds(60);
    options_.build = "build 1";
  }

  PreparedCosts Prepare() { return PrepareCosts(device_, options_); }
  std::string Contents() const {
    std::ifstream file(options_.cost_model_file);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  using Source = CostModelInfo::Source;
  const TemporaryFolder folder_;
  EngineOptions options_;
  PricedDevice device_;
};

TEST_F(PrepareCostsTest, MeasuresOnceForAllThatShareTheFile) {
  const PreparedCosts first = Prepare();
  EXPECT_EQ(first.info.source, Source::kMeasured);
  EXPECT_EQ(first.info.note, "");
  EXPECT_EQ(first.info.examples.size(), std::size(kAutomaticKernels));

  const int launches = device_.launches();
  const PreparedCosts second = Prepare();
  EXPECT_EQ(second.info.source, Source::kFile);
  EXPECT_EQ(device_.launches(), launches) << "nothing was measured";
  EXPECT_EQ(second.model.prices(), first.model.prices());
}

// A file that does not fit is reported and left alone: it may be another server's.
TEST_F(PrepareCostsTest, AFileThatDoesNotFitIsNotedAndLeftAlone) {
  ASSERT_EQ(Prepare().info.source, Source::kMeasured);
  const std::string others = Contents();
  options_.build = "build 2";
  const PreparedCosts prepared = Prepare();
  EXPECT_EQ(prepared.info.source, Source::kMeasured);
  EXPECT_NE(prepared.info.note.find("another device or build"), std::string::npos)
      << prepared.info.note;
  EXPECT_EQ(Contents(), others);

  std::ofstream(options_.cost_model_file) << "castor cost model 1\nnonsense\n";
  const PreparedCosts damaged = Prepare();
  EXPECT_EQ(damaged.info.source, Source::kMeasured);
  EXPECT_NE(damaged.info.note.find("damaged"), std::string::npos) << damaged.info.note;
  EXPECT_EQ(Contents(), "castor cost model 1\nnonsense\n");
}

// When engines start at the same time, all use the file that was written first.
TEST_F(PrepareCostsTest, AFasterEnginesFileWins) {
  const PreparedCosts faster = Prepare();
  const std::string contents = Contents();
  std::filesystem::remove(options_.cost_model_file);
  device_.OnLaunch([&] { std::ofstream(options_.cost_model_file) << contents; });
  const PreparedCosts slower = Prepare();
  EXPECT_EQ(slower.info.source, Source::kFile);
  EXPECT_EQ(slower.model.prices(), faster.model.prices());
  EXPECT_EQ(Contents(), contents);
}

TEST_F(PrepareCostsTest, AFileThatCannotBeWrittenCostsOnlyTheFile) {
  options_.cost_model_file = "/proc/castor/costs";
  const PreparedCosts prepared = Prepare();
  EXPECT_EQ(prepared.info.source, Source::kMeasured);
  EXPECT_NE(prepared.info.note, "");
  EXPECT_FALSE(prepared.model.empty());
}

TEST_F(PrepareCostsTest, NothingIsMeasuredInNoTime) {
  options_.cost_model_budget = std::chrono::milliseconds(0);
  const PreparedCosts prepared = Prepare();
  EXPECT_EQ(prepared.info.source, Source::kNone);
  EXPECT_TRUE(prepared.model.empty());
  EXPECT_NE(prepared.info.note, "") << "a file was named, and is not there";
  EXPECT_FALSE(std::filesystem::exists(options_.cost_model_file));

  options_.cost_model_budget = std::chrono::seconds(60);
  const PreparedCosts measured = Prepare();
  options_.cost_model_budget = std::chrono::milliseconds(0);
  const PreparedCosts read = Prepare();
  EXPECT_EQ(read.info.source, Source::kFile);
  EXPECT_EQ(read.model.prices(), measured.model.prices());
}

// An incomplete model serves this engine but is not kept for the next.
TEST_F(PrepareCostsTest, AnIncompleteModelIsNotKept) {
  options_.cost_model_budget = std::chrono::milliseconds(1);
  const PreparedCosts prepared = Prepare();
  EXPECT_NE(prepared.info.note, "");
  EXPECT_FALSE(std::filesystem::exists(options_.cost_model_file));
}

TEST_F(PrepareCostsTest, ADeviceThatFailsLeavesNoModel) {
  PricedDevice device(/*fails=*/true);
  const PreparedCosts prepared = PrepareCosts(device, options_);
  EXPECT_EQ(prepared.info.source, Source::kNone);
  EXPECT_NE(prepared.info.note, "");
  EXPECT_TRUE(prepared.model.empty());
  EXPECT_GT(device.launches(), 0);
}

}  // namespace
}  // namespace castor
