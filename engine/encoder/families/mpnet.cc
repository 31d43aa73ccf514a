#include "engine/encoder/families/mpnet.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/bert_layout.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kMpnetPrefixes[] = {"", "mpnet."};

constexpr PostNormNames kMpnetNames = {
    .prefixes = kMpnetPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "",
    .norm = "embeddings.LayerNorm",
    .layers = "encoder.layer",
    .qkv = {.query = "attention.attn.q", .key = "attention.attn.k", .value = "attention.attn.v"},
    .attention_output = "attention.attn.o",
    .attention_norm = "attention.LayerNorm",
    .mlp = {.in = "intermediate.dense", .out = "output.dense"},
    .output_norm = "output.LayerNorm",
};

constexpr int64_t kBuckets = 32;
constexpr int64_t kFarthest = 128;  // from here on, a side has one bucket

// Whatever pad_token_id says: the model's code has it as a constant.
constexpr int64_t kMpnetPadding = 1;

// The biases of all heads by distance, float32 [heads, 2 * kFarthest + 1].
at::Tensor TakePositionBias(WeightReader& weights, int64_t heads) {
  weights.ChoosePrefix(std::string(kMpnetNames.words) + ".weight", kMpnetPrefixes);
  const at::Tensor buckets =
      weights.Take("encoder.relative_attention_bias.weight", {kBuckets, heads});
  if (!weights.status().ok()) return {};
  std::vector<int64_t> of_distance;
  for (int64_t d = -kFarthest; d <= kFarthest; ++d) of_distance.push_back(MpnetBucket(d));
  const at::Tensor rows = at::tensor(of_distance, at::kLong).to(buckets.device());
  return at::index_select(buckets, 0, rows).to(at::kFloat).t().contiguous();
}

}  // namespace

int64_t MpnetBucket(int64_t distance) {
  constexpr int64_t kSide = kBuckets / 2;
  constexpr int64_t kExact = kSide / 2;
  const int64_t side = distance > 0 ? kSide : 0;
  const int64_t length = std::abs(distance);
  if (length < kExact) return side + length;
  // 8 + floor(8 * log(length / 8) / log(128 / 8)), in integers: each bucket is sqrt(2) times as far
  // away as the one before.
  int64_t bucket = kExact;
  while (bucket + 1 < kSide && length * length >= (kExact * kExact) << (bucket + 1 - kExact)) {
    ++bucket;
  }
  return side + bucket;
}

absl::StatusOr<FamilyModel> BuildMpnet(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body = ReadBertKeys(config, {.vocabulary = 30527});
  // What a shared centroid would be cannot know how far its queries are from a key.
  body.info.kernels = {KernelName::kVanilla};
  if (config.Int("relative_attention_num_buckets", kBuckets, 1, kMaxSize) != kBuckets) {
    config.Fail("relative_attention_num_buckets",
                "must be 32, the number that MPNet computes with");
  }
  if (body.words <= kMpnetPadding) config.Fail("vocab_size", "leaves no id for the padding");
  if (body.positions <= kMpnetPadding + 1) {
    config.Fail("max_position_embeddings", "leaves no position behind the padding's");
  }
  if (!config.status().ok()) return config.status();
  body.bias = TakePositionBias(weights, body.info.heads);
  InputRules rules{
      .vocabulary = body.words,
      .max_tokens = body.positions - kMpnetPadding - 1,
      .first_position = kMpnetPadding + 1,
      .padding = kMpnetPadding,
  };
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, kMpnetNames, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kMpnetHeads};
}

}  // namespace castor::encoder
