// Rotations: their frequencies by definition, and that of a batch's sequences each is turned as if
// it were alone.
#include "engine/encoder/layers/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace castor::encoder {
namespace {

constexpr int64_t kHeadDim = 8;

std::vector<float> Frequencies(const RopeConfig& config, int64_t length) {
  const at::Tensor made = RopeFrequencies(config, kHeadDim, length, at::Device(at::kCPU));
  const float* data = made.const_data_ptr<float>();
  return {data, data + made.numel()};
}

void ExpectPowers(const std::vector<float>& frequencies, double theta, double divided = 1) {
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(kHeadDim / 2));
  for (size_t e = 0; e < frequencies.size(); ++e) {
    const double expected = std::pow(theta, -2.0 * static_cast<double>(e) / kHeadDim) / divided;
    EXPECT_NEAR(frequencies[e], expected, 1e-6 * expected) << e;
  }
}

TEST(RopeTest, FrequenciesFallByPowersOfTheta) { ExpectPowers(Frequencies({}, 9), 10'000); }

TEST(RopeTest, NtkScalesThetaAndAllFrequencies) {
  ExpectPowers(Frequencies({.theta = 500, .ntk_factor = 3}, 1), 1500, std::pow(3, 0.25));
}

TEST(RopeTest, MixedNtkReachesTheFactorAtTheLastFrequency) {
  const RopeConfig mixed{.theta = 500, .ntk_factor = 8, .ntk_mixed = 0.5};
  const std::vector<float> plain = Frequencies({.theta = 500}, 1), made = Frequencies(mixed, 1);
  for (size_t e = 0; e < plain.size(); ++e) {
    const double share = static_cast<double>(e + 1) / static_cast<double>(plain.size());
    EXPECT_NEAR(plain[e] / made[e], std::pow(8, std::sqrt(share)), 1e-4) << e;
  }
}

TEST(RopeTest, DynamicNtkStretchesLongSequencesOnly) {
  const RopeConfig config{.theta = 1000, .dynamic_factor = 2, .trained = 16};
  ExpectPowers(Frequencies(config, 16), 1000);
  // 2 * 24 / 16 - 1 = 2, to the power of 8 / 6.
  ExpectPowers(Frequencies(config, 24), 1000 * std::pow(2, 8.0 / 6));
}

TEST(RopeTest, ASequenceIsTurnedAsIfItWereAlone) {
  const RopeConfig config{.theta = 1000, .dynamic_factor = 2, .trained = 4};
  const Rope rope(config, kHeadDim, at::Device(at::kCPU));
  const std::vector<int32_t> lengths = {3, 7, 5, 4, 1, 9};
  std::vector<int64_t> positions;
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    offsets.push_back(static_cast<int32_t>(positions.size()));
  }
  const auto all = rope.Of(at::tensor(positions), offsets, RunToEnd());
  ASSERT_TRUE(all.ok()) << all.status();
  for (size_t s = 0; s < lengths.size(); ++s) {
    const std::vector<int32_t> own = {0, lengths[s]};
    const auto alone =
        rope.Of(at::tensor(positions).narrow(0, offsets[s], lengths[s]), own, RunToEnd());
    ASSERT_TRUE(alone.ok()) << alone.status();
    const Rotation part = all->Rows(offsets[s], lengths[s]);
    EXPECT_TRUE(at::equal(part.cos, alone->cos) && at::equal(part.sin, alone->sin)) << s;
  }
}

// As it is on a device without the kernel.
TEST(RopeTest, TheKernelAndTheTensorLibraryAgree) {
  constexpr int64_t kRows = 70, kHeads = 3;
  const Rope rope({}, kHeadDim, at::Device(at::kCPU));
  std::vector<int64_t> positions(kRows);
  for (int64_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = i;
  const std::vector<int32_t> offsets = {0, kRows};
  const auto rotation = rope.Of(at::tensor(positions), offsets, RunToEnd());
  ASSERT_TRUE(rotation.ok()) << rotation.status();
  const at::Tensor rows = at::randn({kRows, 3 * kHeads * kHeadDim});
  const at::Tensor fast = rows.clone(), slow = rows.clone();
  Rotate(*rotation, 2 * kHeads, fast);
  RotateSlowly(*rotation, 2 * kHeads, slow);
  EXPECT_TRUE(fast.allclose(slow, 0, 1e-6));
  EXPECT_TRUE(at::equal(fast.narrow(1, 2 * kHeads * kHeadDim, kHeads * kHeadDim),
                        rows.narrow(1, 2 * kHeads * kHeadDim, kHeads * kHeadDim)))
      << "values were turned";
}

}  // namespace
}  // namespace castor::encoder
