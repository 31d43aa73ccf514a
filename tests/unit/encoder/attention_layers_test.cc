// Heads that go by some at a time give the bytes that they give together.

#include "engine/encoder/layers/attention_layers.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/encoder/layers/disentangled.h"
#include "engine/encoder/layers/self_attention.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

struct Case {
  std::string name;
  at::ScalarType type = at::kFloat;
  bool int8 = false;
  int64_t head_dim = 32;
  bool rotated = false;
  bool normed_heads = false;
  bool normed_rows = false;
  Kernel kernel = Vanilla{};
  bool biased = false;
  int64_t kv_heads = 6;
};

constexpr int64_t kHeadsOfLayer = 6;

class SelfAttentionTest : public testing::TestWithParam<Case> {};

TEST_P(SelfAttentionTest, RangesOfHeadsGiveTheBytesOfAllHeads) {
  const Case& c = GetParam();
  if (c.int8 && !Linear::HasInt8(at::kCPU)) GTEST_SKIP() << "no kernel for 8 bits here";
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  at::manual_seed(seed);
  const int64_t hidden = kHeadsOfLayer * c.head_dim;
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(c.type); };

  const int64_t width = (kHeadsOfLayer + 2 * c.kv_heads) * c.head_dim;
  Qkv qkv{.heads = kHeadsOfLayer,
          .kv_heads = c.kv_heads,
          .linear = Linear(draw({width, hidden}).mul_(0.1), draw({width}), c.int8),
          .query_norm = {},
          .key_norm = {}};
  if (c.normed_heads) qkv.query_norm = LayerNorm(draw({c.head_dim}), draw({c.head_dim}), 1e-5);
  if (c.normed_rows) qkv.key_norm = LayerNorm(draw({hidden}), draw({hidden}), 1e-5);
  const LayerNorm before(draw({hidden}), draw({hidden}), 1e-5);

  const std::vector<int32_t> offsets = {0, 70, 71, 400};
  const Batch batch{.model = nullptr, .kernel = c.kernel, .items = {{.cu_seqlens = offsets}}};
  const Packing packing = Pack(batch);
  const int64_t tokens = packing.tokens();
  const at::Tensor x = draw({tokens, hidden});
  Rotation rotation;
  if (c.rotated) {
    const auto made =
        Rope({}, c.head_dim, at::kCPU).RotationOf(at::arange(tokens), offsets, RunToEnd());
    ASSERT_TRUE(made.ok()) << made.status();
    rotation = *made;
  }
  attention::Spec spec = SelfAttentionSpec(TypeOf(x), hidden, kHeadsOfLayer, c.kernel);
  spec.kv_heads = c.kv_heads;
  constexpr int64_t kReach = 9;
  const at::Tensor table = at::randn({kHeadsOfLayer, 2 * kReach + 1});
  const at::Tensor slopes = at::rand({kHeadsOfLayer});
  if (c.biased) {
    spec.bias = {.table = table.const_data_ptr<float>(),
                 .reach = kReach,
                 .slopes = slopes.const_data_ptr<float>()};
  }

  const Inputs none{};
  const at::Tensor indices = at::arange(tokens);
  int64_t runs = 0;
  int64_t most_heads = 0;
  const AttentionFn attention = [&](const attention::Spec& of, const attention::Problem& problem,
                                    RunControl& control) {
    ++runs;
    most_heads = std::max(most_heads, of.heads);
    return RunOnCpu(of, problem, control);
  };
  const auto bytes_of_heads = [&](int64_t heads) {
    return (heads + 2 * (heads * c.kv_heads / kHeadsOfLayer)) * c.head_dim *
           static_cast<int64_t>(x.element_size()) * tokens;
  };
  struct Result {
    at::Tensor rows;
    int64_t runs;
  };
  const auto run = [&](int64_t most_bytes) -> Result {
    const BodyInputs in{.ids = indices,
                        .type_ids = indices,
                        .positions = indices,
                        .batch = batch,
                        .packing = packing,
                        .inputs = none,
                        .attention = attention,
                        .control = RunToEnd()};
    runs = most_heads = 0;
    const auto rows = SelfAttention({.qkv = qkv,
                                     .before = &before,
                                     .rotation = c.rotated ? &rotation : nullptr,
                                     .most_bytes = most_bytes},
                                    x, spec, in);
    EXPECT_TRUE(rows.ok()) << rows.status();
    EXPECT_LE(bytes_of_heads(most_heads),
              QkvBytes(qkv, x, /*together=*/false, most_bytes).Of(tokens).value());
    return {rows.ok() ? *rows : at::Tensor(), runs};
  };

  const int64_t all = bytes_of_heads(kHeadsOfLayer);
  const Result together = run(all);
  EXPECT_EQ(together.runs, 1);
  // Thirds are a head or two at a time, and the least is one range of the fewest heads.
  for (const int64_t most_bytes : {all / 2, all / 3, int64_t{1}}) {
    const Result parts = run(most_bytes);
    const int64_t grain = qkv.head_grain();
    EXPECT_EQ(parts.runs > 1, grain < kHeadsOfLayer) << most_bytes;
    if (most_bytes == 1) {
      EXPECT_EQ(parts.runs, (kHeadsOfLayer + grain - 1) / grain);
    }
    EXPECT_TRUE(at::equal(parts.rows, together.rows)) << most_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, SelfAttentionTest,
    testing::Values(
        Case{.name = "Float32", .rotated = true}, Case{.name = "Int8", .int8 = true},
        Case{.name = "BFloat16", .type = at::kBFloat16, .rotated = true},
        Case{.name = "HeadsOfUnevenWidth", .head_dim = 24, .normed_heads = true},
        Case{.name = "NarrowHeads", .head_dim = 2},
        // Keys and values begin inside a panel of eight or of sixteen floats.
        Case{.name = "RowsOfUnevenWidth", .head_dim = 12},
        Case{.name = "RowsOfUnevenWidthInInt8", .int8 = true, .head_dim = 12},
        Case{.name = "NormsOfWholeRows", .normed_rows = true}, Case{.name = "Bias", .biased = true},
        Case{.name = "SharedKeys", .rotated = true, .kv_heads = 3},
        Case{.name = "SharedKeysInInt8", .int8 = true, .rotated = true, .kv_heads = 2},
        Case{.name = "SharedKeysInBFloat16", .type = at::kBFloat16, .kv_heads = 2},
        Case{.name = "OneKeyForAll", .normed_heads = true, .kv_heads = 1},
        Case{.name = "SharedKeysClustered", .kernel = Clustered{.clusters = 20}, .kv_heads = 3},
        Case{.name = "Clustered", .kernel = Clustered{.clusters = 20}},
        Case{.name = "ImprovedClustered",
             .rotated = true,
             .kernel = ImprovedClustered{{.clusters = 20}, 8}}),
    [](const auto& tested) { return tested.param.name; });

// The same on a device without the kernel.
TEST(RopeTest, TheKernelAndTheTensorLibraryAgree) {
  constexpr int64_t kRows = 70, kHeads = 3, kHeadDim = 8;
  const std::vector<int32_t> offsets = {0, kRows};
  const auto rotation =
      Rope({}, kHeadDim, at::kCPU).RotationOf(at::arange(kRows), offsets, RunToEnd());
  ASSERT_TRUE(rotation.ok()) << rotation.status();
  const at::Tensor rows = at::randn({kRows, 3 * kHeads * kHeadDim});
  const at::Tensor fast = rows.clone(), slow = rows.clone();
  Rotate(*rotation, 2 * kHeads, fast);
  RotateByLibTorch(*rotation, 2 * kHeads, slow);
  EXPECT_TRUE(fast.allclose(slow, 0, 1e-6));
  EXPECT_TRUE(at::equal(fast.narrow(1, 2 * kHeads * kHeadDim, kHeads * kHeadDim),
                        rows.narrow(1, 2 * kHeads * kHeadDim, kHeads * kHeadDim)))
      << "values were turned";
}

// Disentangled attention by its definition: one score at a time, whichever blocks it is cut into.

constexpr int64_t kLayerHeads = 3, kLayerHeadDim = 4, kRowSize = 10;

// A layer whose longest sequences do not fit into a block of scores.
struct Tested {
  Qkv qkv;
  Disentangled attention;
};

Tested Draw(bool of_queries, bool of_keys) {
  constexpr int64_t kWidth = kLayerHeads * kLayerHeadDim;
  const DisentangledConfig config{.buckets = 16,
                                  .farthest = 100,
                                  .of_queries = of_queries,
                                  .of_keys = of_keys,
                                  .most_tokens = 2000,
                                  .scale = 0.4};
  RelativeRows layer;
  if (of_queries) layer.keys = at::randn({kLayerHeads, 2 * config.span(), kLayerHeadDim});
  if (of_keys) layer.queries = at::randn({kLayerHeads, 2 * config.span(), kLayerHeadDim});
  return {
      .qkv = {.heads = kLayerHeads,
              .kv_heads = kLayerHeads,
              .linear = Linear(at::randn({3 * kWidth, kRowSize}), at::randn({3 * kWidth})),
              .query_norm = {},
              .key_norm = {}},
      .attention = {.config = config, .buckets = BucketsOfDistances(config), .layers = {layer}}};
}

at::Tensor Attend(const Tested& tested, const at::Tensor& x, const std::vector<int32_t>& offsets) {
  const Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {{.cu_seqlens = offsets}}};
  const Packing packing = Pack(batch);
  const Inputs none{};
  const at::Tensor indices = at::arange(packing.tokens());
  const AttentionFn unused = [](const auto&, const auto&, RunControl&) {
    return absl::InternalError("no kernel has these scores");
  };
  const BodyInputs in{.ids = indices,
                      .type_ids = indices,
                      .positions = indices,
                      .batch = batch,
                      .packing = packing,
                      .inputs = none,
                      .attention = unused,
                      .control = RunToEnd()};
  const auto rows = tested.attention(tested.qkv, tested.attention.layers[0], x, in);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : at::Tensor();
}

// The row of a query, in double precision.
std::vector<double> RowOf(const Tested& tested, const at::Tensor& qkv, int64_t head, int64_t begin,
                          int64_t tokens, int64_t query) {
  const auto rows = qkv.accessor<float, 2>();
  const auto part = [&](int64_t which, int64_t token, int64_t e) -> double {
    return rows[begin + token][(which * kLayerHeads + head) * kLayerHeadDim + e];
  };
  const DisentangledConfig& config = tested.attention.config;
  const RelativeRows& layer = tested.attention.layers[0];
  const auto buckets = tested.attention.buckets.accessor<int64_t, 1>();
  std::vector<double> weights;
  double sum = 0;
  for (int64_t j = 0; j < tokens; ++j) {
    const int64_t bucket = buckets[query - j + config.most_tokens - 1];
    double score = 0;
    for (int64_t e = 0; e < kLayerHeadDim; ++e) {
      double with = part(1, j, e);
      if (layer.keys.defined()) with += layer.keys.accessor<float, 3>()[head][bucket][e];
      score += config.scale * part(0, query, e) * with;
      // Scaled when they were taken.
      if (layer.queries.defined()) {
        score += part(1, j, e) * layer.queries.accessor<float, 3>()[head][bucket][e];
      }
    }
    weights.push_back(std::exp(score));
    sum += weights.back();
  }
  std::vector<double> row(kLayerHeadDim);
  for (int64_t j = 0; j < tokens; ++j) {
    for (int64_t e = 0; e < kLayerHeadDim; ++e) row[e] += weights[j] / sum * part(2, j, e);
  }
  return row;
}

TEST(DisentangledTest, ScoresAreThoseOfTheDefinition) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  at::manual_seed(seed);
  const std::vector<int32_t> offsets = {0, 1, 20, 1520};
  const at::Tensor x = at::randn({offsets.back(), kRowSize}).mul_(0.3);
  for (const auto& [of_queries, of_keys] :
       {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
    const Tested tested = Draw(of_queries, of_keys);
    const at::Tensor rows = Attend(tested, x, offsets);
    ASSERT_EQ(rows.sizes(), (std::vector<int64_t>{offsets.back(), kLayerHeads * kLayerHeadDim}));
    const at::Tensor qkv = tested.qkv.linear(x);
    const auto got = rows.accessor<float, 2>();
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      const int64_t begin = offsets[s], tokens = offsets[s + 1] - begin;
      // The first, the last and some between, on both sides of a block's end.
      for (int64_t query = 0; query < tokens; query += std::max<int64_t>(1, tokens / 17)) {
        for (int64_t head = 0; head < kLayerHeads; ++head) {
          const std::vector<double> row = RowOf(tested, qkv, head, begin, tokens, query);
          for (int64_t e = 0; e < kLayerHeadDim; ++e) {
            ASSERT_NEAR(got[begin + query][head * kLayerHeadDim + e], row[e], 2e-5)
                << of_queries << of_keys << " query " << query << " of " << tokens;
          }
        }
      }
    }
  }
}

TEST(DisentangledTest, ASequencesBitsDoNotDependOnTheOthers) {
  at::manual_seed(7);
  const Tested tested = Draw(true, true);
  const at::Tensor x = at::randn({130, kRowSize});
  const at::Tensor together = Attend(tested, x, {0, 50, 130});
  EXPECT_TRUE(at::equal(Attend(tested, x.narrow(0, 50, 80), {0, 80}), together.narrow(0, 50, 80)));
}

}  // namespace
}  // namespace castor::encoder
