// Measuring the cost model: on the CPU, and on a device with known costs.
#include "engine/calibration/measure_costs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "tests/unit/calibration/priced_device.h"

namespace castor {
namespace {

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

}  // namespace
}  // namespace castor
