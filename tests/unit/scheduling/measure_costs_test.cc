// The cost model as an engine gets it at the start: measured on the CPU, or read from the cache.
#include "engine/scheduling/measure_costs.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cpu_device.h"

namespace castor {
namespace {

constexpr KernelName kKernels[] = {KernelName::kVanilla, KernelName::kClustered,
                                   KernelName::kImprovedClustered};

Kernel DefaultOf(KernelName name) {
  if (name == KernelName::kClustered) return Clustered{};
  if (name == KernelName::kImprovedClustered) return ImprovedClustered{};
  return Vanilla{};
}

double Predict(const attention::CostModel& model, KernelName name, DType dtype, int32_t tokens) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = 8;
  spec.head_dim = spec.value_dim = 64;
  spec.kernel = DefaultOf(name);
  const std::vector<int32_t> offsets = {0, tokens};
  return model.Predict(spec, offsets, offsets).value_or(-1);
}

// Times differ between machines and moments; what holds on all of them is their order.
TEST(MeasureCostsTest, TheCpusModelKnowsThatApproximationsGrowSlower) {
  EngineOptions options;
  options.cpu_threads = 2;
  const auto device = CpuDevice::Open(options, "");
  const MeasuredCosts measured = MeasureCosts(*device, std::chrono::seconds(30));
  ASSERT_TRUE(measured.complete);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(std::string(NameOf(dtype)));
    for (const KernelName name : kKernels) {
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

// A device that computes nothing and takes as long as these prices say.
class PricedDevice : public Device {
 public:
  static double Price(KernelName kernel, DType dtype, size_t term) {
    const double factor = dtype == DType::kFloat32 ? 1 : dtype == DType::kBFloat16 ? 0.75 : 3;
    const bool fixed = term < 2;  // no element is touched
    const int index = static_cast<int>(kernel);
    return (term == 0 ? 20 : static_cast<double>(index + 1)) * (fixed ? 1 : factor);
  }

  explicit PricedDevice(bool fails = false) : fails_(fails) { info_.name = "priced"; }

  int launches() const { return launches_; }

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return pool_; }
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
  MemoryStats memory() const override { return {}; }
  bool healthy() const override { return true; }
  int depth() const override { return 1; }
  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch) override {
    ++launches_;
    if (fails_) return MakeError(Reason::kOutOfMemory, "no room");
    const auto& problem = batch.requests.front();
    const attention::CostTerms terms =
        attention::CostTermsOf(batch.spec, problem.cu_seqlens_q, problem.cu_seqlens_k);
    ExecutionTimes times;
    for (size_t t = 0; t < attention::kCostTerms; ++t) {
      times.compute_us += terms[t] * Price(NameOf(batch.spec.kernel), batch.spec.dtype, t);
    }
    return std::make_unique<Finished>(times);
  }

 private:
  class Finished : public Execution {
   public:
    explicit Finished(const ExecutionTimes& times) : times_(times) {}
    absl::StatusOr<ExecutionTimes> Wait() override { return times_; }

   private:
    const ExecutionTimes times_;
  };

  const bool fails_;
  int launches_ = 0;
  DeviceInfo info_;
  const std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), int64_t{64} << 20);
};

TEST(MeasureCostsTest, FindsWhatADeviceTakes) {
  PricedDevice device;
  const MeasuredCosts measured = MeasureCosts(device, std::chrono::seconds(60));
  ASSERT_TRUE(measured.complete);
  const std::vector<int32_t> offsets = {0, 777, 3000};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const KernelName name : kKernels) {
      attention::Spec spec;
      spec.dtype = dtype;
      spec.heads = 5;
      spec.head_dim = spec.value_dim = 48;
      spec.kernel = DefaultOf(name);
      const attention::CostTerms terms = attention::CostTermsOf(spec, offsets, offsets);
      double us = 0;
      for (size_t t = 0; t < attention::kCostTerms; ++t) {
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
  void SetUp() override {
    std::string pattern = testing::TempDir() + "castor-prepare-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.cost_model_cache = folder_ + "/cache";
    options_.cost_model_budget = std::chrono::seconds(60);
    options_.build = "build 1";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  PreparedCosts Prepare() { return PrepareCosts(device_, options_); }

  using Source = CostModelInfo::Source;
  std::string folder_;
  EngineOptions options_;
  PricedDevice device_;
};

TEST_F(PrepareCostsTest, MeasuresOnceForADeviceAndABuild) {
  const PreparedCosts first = Prepare();
  EXPECT_EQ(first.info.source, Source::kMeasured);
  EXPECT_EQ(first.info.note, "");
  EXPECT_EQ(first.info.examples.size(), std::size(kKernels));
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
