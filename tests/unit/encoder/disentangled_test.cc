// Disentangled attention by its definition: one score at a time, whichever blocks it is cut into.
#include "engine/encoder/layers/disentangled.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

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
