// What layers lose, compared with its definition: double precision, plain loops, all rows.
#include "engine/encoder/network/row_probe.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/cost/fidelity.h"
#include "engine/encoder/layers/attention_layers.h"
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

// A layer's input, what its heads returned, and what it makes of that: weights [hidden, hidden].
struct Layer {
  at::Tensor x = {};
  at::Tensor mixed = {};
  at::Tensor weights = {};

  explicit Layer(int64_t tokens)
      : x(at::randn({tokens, kHidden})),
        mixed(at::randn({tokens, kHidden})),
        weights(at::randn({kHidden, kHidden})) {}

  absl::Status End(RowProbe& probe, int64_t step = 1000) const {
    const auto output = [this](const at::Tensor& rows) { return at::matmul(rows, weights); };
    return probe.EndLayer({.x = x, .mixed = mixed, .output = output, .step = step}, RunToEnd());
  }
};

// row [hidden] times the layer's weights, added to one of its rows.
std::vector<double> Added(const Layer& layer, int64_t token, std::span<const double> row) {
  std::vector<double> sum;
  for (int64_t to = 0; to < kHidden; ++to) {
    sum.push_back(layer.x.const_data_ptr<float>()[token * kHidden + to]);
    for (int64_t from = 0; from < kHidden; ++from) {
      sum.back() += row[static_cast<size_t>(from)] *
                    layer.weights.const_data_ptr<float>()[from * kHidden + to];
    }
  }
  return sum;
}

// A layer's loss by its definition, for one sequence of a batch whose first row is `first`.
double LossByDefinition(const Layer& layer, const at::Tensor& qkv, int64_t first, int32_t tokens,
                        std::span<const int32_t> rows) {
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
    const auto* const mixed = layer.mixed.const_data_ptr<float>() + (first + row) * kHidden;
    const std::vector<double> expected = Added(
        layer, first + row, std::span(exact).subspan(static_cast<size_t>(row * kHidden), kHidden));
    const std::vector<double> got =
        Added(layer, first + row, std::vector<double>(mixed, mixed + kHidden));
    double lost = 0;
    double norm = 0;
    for (size_t e = 0; e < got.size(); ++e) {
      lost += (got[e] - expected[e]) * (got[e] - expected[e]);
      norm += expected[e] * expected[e];
    }
    loss += lost / norm / static_cast<double>(rows.size());
  }
  return loss;
}

// A layer whose heads go by as two and one.
void AddInRanges(RowProbe& probe, attention::Spec spec, const at::Tensor& qkv,
                 const AttentionFn& attention) {
  constexpr int64_t kHeadDim = kHidden / kHeads;
  for (const auto& [first, heads] : {std::pair{0, 2}, std::pair{2, 1}}) {
    std::vector<at::Tensor> parts;
    for (int part = 0; part < 3; ++part) {
      parts.push_back(qkv.narrow(1, part * kHidden + first * kHeadDim, heads * kHeadDim));
    }
    spec.heads = heads;
    ASSERT_TRUE(probe.AddHeads(spec, at::cat(parts, 1), attention, RunToEnd()).ok());
  }
}

TEST(RowProbeTest, AddsUpWhatEachLayerLoses) {
  const uint32_t seed = TestSeed();
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
  for (int i_layer = 0; i_layer < 3; ++i_layer) {
    const at::Tensor qkv = at::randn({packing.tokens(), 3 * kHidden});
    const Layer layer(packing.tokens());
    if (i_layer == 0) {
      ASSERT_TRUE(probe.AddHeads(SpecOfLayer(batch.kernel), qkv, attention, RunToEnd()).ok());
    } else {
      AddInRanges(probe, SpecOfLayer(batch.kernel), qkv, attention);
    }
    ASSERT_TRUE(layer.End(probe, /*step=*/i_layer == 1 ? 3 : 1000).ok());
    // An exact layer, as a local one is, loses nothing.
    ASSERT_TRUE(probe.AddHeads(SpecOfLayer(Vanilla{}), qkv, attention, RunToEnd()).ok());
    ASSERT_TRUE(layer.End(probe).ok());
    for (const size_t i : {0, 2}) {
      const BatchItem& item = batch.items[i];
      const auto drawn = attention::DrawFidelityRows(seed, item.probe_rows, item.cu_seqlens);
      for (size_t s = 0; s + 1 < item.cu_seqlens.size(); ++s) {
        std::vector<int32_t> rows(drawn.tokens.begin() + drawn.cu_seqlens[s],
                                  drawn.tokens.begin() + drawn.cu_seqlens[s + 1]);
        for (int32_t& row : rows) row -= item.cu_seqlens[s];
        expected[i][s] += LossByDefinition(layer, qkv, packing.first_token[i] + item.cu_seqlens[s],
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
  const Layer layer(5);
  const auto losses_of = [&] {
    const Packing packing = Pack(batch);
    RowProbe probe(batch, packing, at::kCPU);
    EXPECT_TRUE(probe.AddHeads(SpecOfLayer(batch.kernel), qkv, ExactTwin(&runs), RunToEnd()).ok());
    EXPECT_TRUE(layer.End(probe).ok());
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
  Layer layer(10);
  layer.x.zero_();
  layer.mixed.zero_();
  layer.mixed.mutable_data_ptr<float>()[9 * kHidden] = INFINITY;
  ASSERT_TRUE(probe.AddHeads(SpecOfLayer(batch.kernel), qkv, ExactTwin(&runs), RunToEnd()).ok());
  ASSERT_TRUE(layer.End(probe).ok());
  const float* const losses = probe.Losses()[0].const_data_ptr<float>();
  EXPECT_EQ(losses[0], 0);
  EXPECT_FALSE(std::isfinite(losses[1]));
}

// Rows so large that attention hardly moves them lose little, and exactly so little: their squares
// are finite where those of float32 are not.
TEST(RowProbeTest, WhatIsLostCountsByTheRestOfTheRow) {
  const std::vector<int32_t> offsets = {0, 5};
  Batch batch{.model = nullptr, .kernel = Clustered{}, .items = {{.cu_seqlens = offsets}}};
  batch.items[0].probe_rows = 5;
  const Packing packing = Pack(batch);
  const at::Tensor qkv = at::randn({5, 3 * kHidden});
  Layer layer(5);
  int runs = 0;
  const auto loss = [&](float scale) {
    RowProbe probe(batch, packing, at::kCPU);
    EXPECT_TRUE(probe.AddHeads(SpecOfLayer(batch.kernel), qkv, ExactTwin(&runs), RunToEnd()).ok());
    Layer scaled = layer;
    scaled.x = at::mul(layer.x, at::full({}, scale));
    EXPECT_TRUE(scaled.End(probe).ok());
    return double{probe.Losses()[0].const_data_ptr<float>()[0]};
  };
  EXPECT_NEAR(loss(1e6f) / loss(1e4f), 1e-4, 1e-6);
  EXPECT_NEAR(loss(1e20f) / loss(1e4f), 1e-32, 1e-34);
}

}  // namespace
}  // namespace castor::encoder
