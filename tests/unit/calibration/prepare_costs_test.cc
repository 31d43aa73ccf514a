// The cost model as an engine gets it at the start: measured, or read from the cache.
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
    options_.cost_model_cache = folder_ / "cache";
    options_.cost_model_budget = std::chrono::seconds(60);
    options_.build = "build 1";
  }

  PreparedCosts Prepare() { return PrepareCosts(device_, options_); }

  using Source = CostModelInfo::Source;
  const TemporaryFolder folder_;
  EngineOptions options_;
  PricedDevice device_;
};

TEST_F(PrepareCostsTest, MeasuresOnceForADeviceAndABuild) {
  const PreparedCosts first = Prepare();
  EXPECT_EQ(first.info.source, Source::kMeasured);
  EXPECT_EQ(first.info.note, "");
  EXPECT_EQ(first.info.examples.size(), std::size(kAutomaticKernels));
  EXPECT_TRUE(std::filesystem::exists(first.info.file));

  const int launches = device_.launches();
  const PreparedCosts second = Prepare();
  EXPECT_EQ(second.info.source, Source::kCached);
  EXPECT_EQ(device_.launches(), launches) << "nothing was measured";
  EXPECT_EQ(second.model.prices(), first.model.prices());

  options_.build = "build 2";
  const PreparedCosts other = Prepare();
  EXPECT_EQ(other.info.source, Source::kMeasured);
  EXPECT_NE(other.info.file, first.info.file);
}

TEST_F(PrepareCostsTest, ADamagedFileIsNotedAndReplaced) {
  const PreparedCosts first = Prepare();
  ASSERT_TRUE(std::filesystem::exists(first.info.file));
  std::ofstream(first.info.file) << "castor cost model 1\nnonsense\n";
  const PreparedCosts second = Prepare();
  EXPECT_EQ(second.info.source, Source::kMeasured);
  EXPECT_NE(second.info.note.find("damaged"), std::string::npos) << second.info.note;
  EXPECT_EQ(Prepare().info.source, Source::kCached);
}

TEST_F(PrepareCostsTest, AFolderThatCannotBeWrittenCostsOnlyTheCache) {
  options_.cost_model_cache = "/proc/castor";
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
  EXPECT_FALSE(std::filesystem::exists(options_.cost_model_cache));
}

// A model that was cut short serves this engine, and is not kept for the next.
TEST_F(PrepareCostsTest, AnIncompleteModelIsNotKept) {
  options_.cost_model_budget = std::chrono::milliseconds(1);
  const PreparedCosts prepared = Prepare();
  EXPECT_NE(prepared.info.note, "");
  EXPECT_FALSE(std::filesystem::exists(prepared.info.file));
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
