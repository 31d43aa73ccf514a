// The cost model at the start of an engine: measured on the CPU and on a device with known costs,
// or read from its file.
#include "engine/forecast/calibration.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cpu_device.h"
#include "engine/forecast/cost_model.h"
#include "engine/kernel_table.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/loop/instant_device.h"

namespace castor {
namespace {

// Computes nothing, and reports the times that these prices give.
class PricedDevice : public InstantDevice {
 public:
  // Half-precision is dearer or cheaper, and each kernel dearer than the one before; the launch is
  // dearest.
  static double Price(KernelName kernel, DType dtype, size_t term) {
    const double factor = dtype == DType::kFloat32 ? 1 : dtype == DType::kBFloat16 ? 0.75 : 3;
    return term == 0 ? 2 : factor * (1 + 0.25 * static_cast<int>(kernel));
  }

  explicit PricedDevice(bool fails = false) : InstantDevice("priced"), fails_(fails) {}

  int launches() const { return launches_; }
  void OnLaunch(std::function<void()> then) { on_launch_ = std::move(then); }

  std::span<const attention::Variant> variants() const override {
    static constexpr auto kSupports = [](const attention::Spec& spec) {
      return spec.dtype != DType::kInt32;
    };
    static constexpr attention::Variant kVariants[] = {
        {KernelName::kVanilla, "priced", kSupports, nullptr},
        {KernelName::kClustered, "priced", kSupports, nullptr},
        {KernelName::kImprovedClustered, "priced", kSupports, nullptr},
    };
    return kVariants;
  }
  using InstantDevice::Launch;
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl&) override {
    ++launches_;
    if (on_launch_) on_launch_();
    if (fails_) return MakeError(Reason::kOutOfMemory, "no room");
    const auto& problem = batch.requests.front();
    const CostTerms terms = CostTermsOf(batch.spec, problem.cu_seqlens_q, problem.cu_seqlens_k);
    ExecutionTimes times;
    for (size_t t = 0; t < kCostTerms; ++t) {
      times.compute_us += terms[t] * Price(NameOf(batch.spec.kernel), batch.spec.dtype, t);
    }
    return Finished(times);
  }

 private:
  const bool fails_;
  std::function<void()> on_launch_;
  int launches_ = 0;
};

Kernel DefaultOf(KernelName name) {
  if (name == KernelName::kClustered) return Clustered{};
  if (name == KernelName::kImprovedClustered) return ImprovedClustered{};
  return Vanilla{};
}

double Predict(const CostModel& model, KernelName name, DType dtype, int32_t tokens) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = spec.value_dim = 64;
  spec.kernel = DefaultOf(name);
  const std::vector<int32_t> offsets = {0, tokens};
  return model.Predict(spec, offsets, offsets).value_or(-1);
}

// Times differ between machines and runs; their order does not.
TEST(MeasureCostsTest, TheCpusModelKnowsThatApproximationsGrowSlower) {
  EngineOptions options;
  options.cpu_threads = 2;
  const auto device = CpuDevice::Open(options, "");
  const MeasuredCosts measured = MeasureCosts(*device, std::chrono::seconds(30));
  ASSERT_TRUE(measured.complete);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(std::string(NameOf(dtype)));
    for (const KernelName name : kAutomaticKernels) {
      SCOPED_TRACE(std::string(NameOf(name)));
      EXPECT_GT(Predict(measured.model, name, dtype, 1), 0);
      EXPECT_LT(Predict(measured.model, name, dtype, 1),
                Predict(measured.model, name, dtype, 4096));
    }
    for (const KernelName name : {KernelName::kClustered, KernelName::kImprovedClustered}) {
      const auto growth = [&](KernelName kernel) {
        return Predict(measured.model, kernel, dtype, 65536) /
               Predict(measured.model, kernel, dtype, 4096);
      };
      EXPECT_GT(growth(KernelName::kVanilla), 100);  // quadratic
      EXPECT_LT(growth(name), 20);                   // linear
      EXPECT_GT(Predict(measured.model, KernelName::kVanilla, dtype, 65536),
                5 * Predict(measured.model, name, dtype, 65536));
    }
  }
}

TEST(MeasureCostsTest, FindsWhatADeviceTakes) {
  PricedDevice device;
  const MeasuredCosts measured = MeasureCosts(device, std::chrono::seconds(60));
  ASSERT_TRUE(measured.complete);
  const std::vector<int32_t> offsets = {0, 777, 3000};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const KernelName name : kAutomaticKernels) {
      attention::Spec spec;
      spec.dtype = dtype;
      spec.heads = spec.kv_heads = 5;
      spec.head_dim = spec.value_dim = 48;
      spec.kernel = DefaultOf(name);
      const CostTerms terms = CostTermsOf(spec, offsets, offsets);
      double us = 0;
      for (size_t t = 0; t < kCostTerms; ++t) {
        us += terms[t] * PricedDevice::Price(name, dtype, t);
      }
      const auto predicted = measured.model.Predict(spec, offsets, offsets);
      ASSERT_TRUE(predicted.has_value());
      EXPECT_NEAR(*predicted / us, 1, 0.1) << NameOf(name) << " " << NameOf(dtype);
    }
  }
}

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

// A file with another key is reported but not changed: it may belong to another server.
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

  for (const auto& [from, to] :
       {std::pair("model 5", "model 4"), {"[", "[-"}, {"[", "[null, "}, {"prices", "price"}}) {
    std::string changed = others;
    changed.replace(changed.find(from), std::string(from).size(), to);
    std::ofstream(options_.cost_model_file) << changed;
    options_.build = "build 1";
    EXPECT_EQ(Prepare().info.source, Source::kMeasured) << to;
    EXPECT_EQ(Contents(), changed);
  }
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
  EXPECT_NE(prepared.info.note, "") << "the file does not exist";
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
