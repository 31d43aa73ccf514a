// For any finite scale in a request, every row of the CPU's variant table gives finite output that
// follows the definition.

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/odd_scales.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {
namespace {

class ScaleTest : public VariantTest {
 protected:
  static std::vector<Kernel> Kernels(int32_t cast_size) {
    switch (GetParam().kernel) {
      case KernelName::kVanilla:
        return {Vanilla{}, Vanilla{.causal = true}};
      case KernelName::kClustered:
        return {PlainClusters(9)};
      case KernelName::kImprovedClustered:
        return {ImprovedClusters(9, 5), ImprovedClusters(9, 1024)};
      case KernelName::kCast: {
        std::vector<Kernel> readings;
        for (int reading = 0; reading < kCastReadings; ++reading) {
          const Cast kernel = CastReading(reading, cast_size);
          const bool single = kernel.clustering == Cast::Clustering::kSingleAssignmentTopK;
          if (cast_size == 0 || !single) readings.push_back(kernel);
        }
        return readings;
      }
    }
    return {};
  }
  // More keys than the kernel holds scores of at a time, and few; but no CAST cluster may be empty.
  static std::vector<int32_t> Lengths() {
    return {GetParam().kernel == KernelName::kImprovedClustered ? 1100 : 140, 5};
  }
  static void RunIt(OwnedProblem& problem) { Run(problem); }

  static constexpr int64_t kHeads = kSanitized ? 1 : 2;
};

TEST_P(ScaleTest, NearZeroWeighsAllKeysAlike) {
  for (const DType dtype : kFloatTypes) {
    if (kSanitized && dtype != DType::kFloat32) continue;  // fewer cases
    for (const Kernel& kernel : Kernels(/*cast_size=*/2000)) {
      CastProblem layer(MakeSpec(dtype, kernel, kHeads, 8, 5, 3), Lengths(), random_);
      if (!IsLaplace(layer.problem.spec)) ExpectRowsOfScalesNearZero(layer.problem, RunIt);
    }
  }
}

TEST_P(ScaleTest, AnyGivesFiniteRowsWhoseWeightsSumToOne) {
  for (const DType dtype : kFloatTypes) {
    if (kSanitized && dtype != DType::kFloat32) continue;  // fewer cases
    for (const Kernel& kernel : Kernels(/*cast_size=*/0)) {
      CastProblem layer(MakeSpec(dtype, kernel, kHeads, 8, 5, 3), Lengths(), random_);
      ExpectFiniteRowsOfAnyScale(layer.problem, RunIt);
    }
  }
}

// A gate's temperature multiplies the scale. Rows must stay finite whatever the size of both.
TEST_P(ScaleTest, GatesOfAnySizeGiveFiniteRows) {
  if (GetParam().kernel != KernelName::kCast) GTEST_SKIP() << "has no gates";
  for (const Kernel& kernel : Kernels(/*cast_size=*/0)) {
    CastProblem layer(MakeSpec(DType::kFloat32, kernel, 2, 8, 5, 3), Lengths(), random_);
    for (size_t i = 0; i < layer.gate.size(); ++i) layer.gate[i] = i % 2 == 0 ? 3e38f : -3e38f;
    ExpectFiniteRowsOfAnyScale(layer.problem, RunIt);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ScaleTest,
                         testing::ValuesIn(CpuVariants().begin(), CpuVariants().end()), NameOfRow);

}  // namespace
}  // namespace castor::attention
