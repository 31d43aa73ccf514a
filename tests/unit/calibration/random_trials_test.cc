// Random trials stay within what they are allowed, and are the same each time.
#include "engine/calibration/random_trials.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "engine/attention/cost/typical_prices.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

attention::CostModel Typical() {
  attention::CostModel model;
  for (const KernelRow& row : kKernels) {
    model.Set(row.name, DType::kFloat32, attention::TypicalPrices(row.name));
  }
  return model;
}

TEST(RandomTrialsTest, TakeNoLongerThanAllowed) {
  constexpr double kMostUs = 1000;
  const attention::CostModel model = Typical();
  RandomTrials random(model, attention::CpuVariants(), 4096, kMostUs);
  RandomTrials again(model, attention::CpuVariants(), 4096, kMostUs);
  for (const KernelRow& row : kKernels) {
    for (int i = 0; i < 100; ++i) {
      const auto trial = random.Draw(row.name, DType::kFloat32);
      const auto same = again.Draw(row.name, DType::kFloat32);
      ASSERT_EQ(trial.has_value(), same.has_value());
      if (!trial) continue;
      EXPECT_EQ(trial->queries, same->queries);
      EXPECT_EQ(trial->queries.size(), trial->keys.size());
      const attention::Spec spec = trial->spec(DType::kFloat32);
      EXPECT_EQ(NameOf(spec.kernel), row.name);
      EXPECT_LE(*model.Predict(spec, OffsetsOf(trial->queries), OffsetsOf(trial->keys)), kMostUs);
    }
  }
  EXPECT_FALSE(random.Draw(KernelName::kVanilla, DType::kFloat16)) << "has no prices";
}

// Of improved clustered; they are among the automatic kernel's rungs.
TEST(RandomTrialsTest, HaveOptionsBeyondThePaperWhereTheDeviceHas) {
  const attention::CostModel model = Typical();
  const auto with_options = [&](std::span<const attention::Variant> variants) {
    RandomTrials random(model, variants, 4096, 1000);
    int count = 0;
    for (int i = 0; i < 100; ++i) {
      const auto trial = random.Draw(KernelName::kImprovedClustered, DType::kFloat32);
      count += trial && !attention::OptionBeyondThePaper(trial->kernel).empty();
    }
    return count;
  };
  EXPECT_GT(with_options(attention::CpuVariants()), 10);
  std::vector<attention::Variant> papers(attention::CpuVariants().begin(),
                                         attention::CpuVariants().end());
  for (attention::Variant& row : papers) {
    row.supports = [](const attention::Spec& spec) {
      return attention::OptionBeyondThePaper(spec.kernel).empty();
    };
  }
  EXPECT_EQ(with_options(papers), 0);
}

}  // namespace
}  // namespace castor
