// What layers lose, compared with its definition: double precision, plain loops, all rows.
#include "engine/encoder/row_probe.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/fidelity.h"
#include "engine/encoder/attention_layers.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/vanilla.h"

namespace castor::encoder {
namespace {

constexpr int64_t kHidden = 24;
constexpr int64_t kHeads = 3;

// Exact attention by its twin. Counts its runs.
AttentionFn ExactTwin(int* runs) {
  return [runs](const attention::Spec& spec, const attention::Problem& problem, RunControl&) {
    ++*runs;
    EXPECT_EQ(NameOf(spec.kernel), KernelName::kVanilla);
    const std::vector<double> rows = attention::VanillaReference(spec, problem);
    auto* out = reinterpret_cast<float*>(problem.output);
    for (size_t i = 0; i < rows.size(); ++i) out[i] = static_cast<float>(rows[i]);
    return absl::OkStatus();
  };
}

attention::Spec SpecOfLayer(const Kernel& kernel) {
  return SelfAttentionSpec(DType::kFloat32, kHidden, kHeads, kernel);
}

// A layer's loss by its definition, for one sequence of a batch whose first row is `first`.
double LossByDefinition(const at::Tensor& qkv, const at::Tensor& mixed, int64_t first,
                        int32_t tokens, std::span<const int32_t> rows) {
  const std::vector<int32_t> offsets = {0, tokens};
  attention::Problem problem;
  const auto* base = qkv.const_data_ptr<float>() + first * 3 * kHidden;
  problem.query = reinterpret_cast<const std::byte*>(base);
  problem.key = reinterpret_cast<const std::byte*>(base + kHidden);
  problem.value = reinterpret_cast<const std::byte*>(base + 2 * kHidden);
  problem.query_stride = problem.key_stride = problem.value_stride = 3 * kHidden;
  problem.output_stride = kHidden;
  problem.cu_seqlens_q = problem.cu_seqlens_k = offsets;
  const std::vector<double> exact = attention::VanillaReference(SpecOfLayer(Vanilla{}), problem);
  double loss = 0;
  for (const int32_t row : rows) {
    double lost = 0;
    double norm = 0;
    for (int64_t e = 0; e < kHidden; ++e) {
      const double expected = exact[row * kHidden + e];
      const double got = mixed.const_data_ptr<float>()[(first + row) * kHidden + e];
      lost += (got - expected) * (got - expected);
      norm += expected * expected;
    }
    loss += lost / norm / static_cast<double>(rows.size());
  }
  return loss;
}

// A layer whose heads go by as two and one.
void AddInRanges(RowProbe& probe, attention::Spec spec, const at::Tensor& qkv,
                 const at::Tensor& mixed, const AttentionFn& attention) {
  constexpr int64_t kHeadDim = kHidden / kHeads;
  for (const auto& [first, heads] : {std::pair{0, 2}, std::pair{2, 1}}) {
    std::vector<at::Tensor> parts;
    for (int part = 0; part < 3; ++part) {
      parts.push_back(qkv.narrow(1, part * kHidden + first * kHeadDim, heads * kHeadDim));
    }
    spec.heads = heads;
    const at::Tensor output = mixed.narrow(1, first * kHeadDim, heads * kHeadDim);
    ASSERT_TRUE(probe.AddHeads(spec, at::cat(parts, 1), output, attention, RunToEnd()).ok());
  }
}

TEST(RowProbeTest, AddsUpWhatEachLayerLoses) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  at::manual_seed(seed);
  const std::vector<int32_t> first = {0, 30, 37, 38};
  const std::vector<int32_t> second = {0, 20};
  const std::vector<int32_t> third = {0, 9, 50};
  Batch batch{.model = nullptr, .kernel = Clustered{.seed = seed}, .items = {}};
  batch.items = {{.cu_seqlens = first}, {.cu_seqlens = second}, {.cu_seqlens = third}};
  batch.items[0].probe_rows = 8;
  batch.items[2].probe_rows = 1000;  // all
  const Packing packing = Pack(batch);
  RowProbe probe(batch, packing, at::kCPU);
  int runs = 0;
  const AttentionFn attention = ExactTwin(&runs);
  std::vector<std::vector<double>> expected = {{0, 0, 0}, {}, {0, 0}};
  for (int layer = 0; layer < 3; ++layer) {
    const at::Tensor qkv = at::randn({packing.tokens(), 3 * kHidden});
    const at::Tensor mixed = at::randn({packing.tokens(), kHidden});
    if (layer == 0) {
      ASSERT_TRUE(
          probe.AddHeads(SpecOfLayer(batch.kernel), qkv, mixed, attention, RunToEnd()).ok());
    } else {
      AddInRanges(probe, SpecOfLayer(batch.kernel), qkv, mixed, attention);
    }
    probe.EndLayer();
    // An exact layer, as a local one is, loses nothing.
    ASSERT_TRUE(probe.AddHeads(SpecOfLayer(Vanilla{}), qkv, mixed, attention, RunToEnd()).ok());
    probe.EndLayer();
    for (const size_t i : {0, 2}) {
      const BatchItem& item = batch.items[i];
      const auto drawn = attention::DrawFidelityRows(seed, item.probe_rows, item.cu_seqlens);
      for (size_t s = 0; s + 1 < item.cu_seqlens.size(); ++s) {
        std::vector<int32_t> rows(drawn.tokens.begin() + drawn.cu_seqlens[s],
                                  drawn.tokens.begin() + drawn.cu_seqlens[s + 1]);
        for (int32_t& row : rows) row -= item.cu_seqlens[s];
        expected[i][s] += LossByDefinition(qkv, mixed, packing.first_token[i] + item.cu_seqlens[s],
                                           item.cu_seqlens[s + 1] - item.cu_seqlens[s], rows);
      }
    }
  }
  EXPECT_EQ(runs, (1 + 2 + 2) * 2) << "one for each range of heads and item that asks";
  const std::vector<at::Tensor> losses = probe.Losses();
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_FALSE(losses[1].defined());
  for (const size_t i : {0, 2}) {
    ASSERT_EQ(losses[i].numel(), static_cast<int64_t>(expected[i].size()));
    for (size_t s = 0; s < expected[i].size(); ++s) {
      EXPECT_NEAR(losses[i].const_data_ptr<float>()[s] / expected[i][s], 1, 1e-4) << i << " " << s;
    }
  }
}

TEST(RowProbeTest, DoesNothingForExactBatchesAndThoseWhoDoNotAsk) {
  const std::vector<int32_t> offsets = {0, 5};
  Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {{.cu_seqlens = offsets}}};
  batch.items[0].probe_rows = 4;
  int runs = 0;
  const at::Tensor qkv = at::randn({5, 3 * kHidden});
  const at::Tensor mixed = at::randn({5, kHidden});
  const auto losses_of = [&] {
    const Packing packing = Pack(batch);
    RowProbe probe(batch, packing, at::kCPU);
    EXPECT_TRUE(
        probe.AddHeads(SpecOfLayer(batch.kernel), qkv, mixed, ExactTwin(&runs), RunToEnd()).ok());
    probe.EndLayer();
    return probe.Losses();
  };
  EXPECT_FALSE(losses_of()[0].defined());
  batch.kernel = Clustered{};
  batch.items[0].probe_rows = 0;
  EXPECT_FALSE(losses_of()[0].defined());
  EXPECT_EQ(runs, 0);
}

TEST(RowProbeTest, ValuesThatAreNotFiniteGiveNoFiniteLossAndZerosNone) {
  const std::vector<int32_t> offsets = {0, 5, 10};
  Batch batch{.model = nullptr, .kernel = Clustered{}, .items = {{.cu_seqlens = offsets}}};
  batch.items[0].probe_rows = 5;
  const Packing packing = Pack(batch);
  RowProbe probe(batch, packing, at::kCPU);
  int runs = 0;
  const at::Tensor qkv = at::zeros({10, 3 * kHidden});
  const at::Tensor mixed = at::zeros({10, kHidden});
  mixed.mutable_data_ptr<float>()[9 * kHidden] = INFINITY;
  ASSERT_TRUE(
      probe.AddHeads(SpecOfLayer(batch.kernel), qkv, mixed, ExactTwin(&runs), RunToEnd()).ok());
  probe.EndLayer();
  const float* const losses = probe.Losses()[0].const_data_ptr<float>();
  EXPECT_EQ(losses[0], 0);
  EXPECT_FALSE(std::isfinite(losses[1]));
}

}  // namespace
}  // namespace castor::encoder
