// DeBERTa, versions 2 and 3: BERT's layers with disentangled attention (layers/disentangled.h),
// often without positions in the embeddings, sometimes with a convolution (layers/convolution.h).
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kDebertaPrefixes[] = {"", "deberta."};

TransformerNames DebertaNames() {
  TransformerNames names = BertNames(kDebertaPrefixes);
  names.qkv = {.query = "attention.self.query_proj",
               .key = "attention.self.key_proj",
               .value = "attention.self.value_proj"};
  return names;
}

std::vector<std::string> Split(const std::string& names) {
  std::vector<std::string> split = absl::StrSplit(absl::AsciiStrToLower(names), '|');
  for (std::string& name : split) absl::StripAsciiWhitespace(&name);
  return split;
}

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Reads the terms of scores, "c2p" and "p2c": a list, or one string.
std::vector<std::string> ReadTerms(ConfigReader& config) {
  constexpr std::string_view kKey = "pos_att_type";
  if (!config.Has(kKey)) return {};
  std::vector<std::string> terms = config.json()[std::string(kKey)].is_string()
                                       ? Split(config.String(kKey, ""))
                                       : config.Strings(kKey);
  for (const std::string& term : terms) {
    if (term != "c2p" && term != "p2c") {
      config.Fail(kKey, "\"" + term + "\" is not known; \"c2p\" and \"p2c\" are");
    }
  }
  return terms;
}

// Refuses options of the published code that the body does not compute.
void RefuseUnserved(ConfigReader& config, const BodyInfo& info) {
  if (ReadSize(config, "attention_head_size", info.head_size()) != info.head_size()) {
    config.Fail("attention_head_size", "must be hidden_size / num_attention_heads");
  }
  if (ReadSize(config, "embedding_size", info.hidden) != info.hidden) {
    config.Fail("embedding_size", "must be hidden_size");
  }
  if (ReadSize(config, "pooler_hidden_size", info.hidden) != info.hidden) {
    config.Fail("pooler_hidden_size", "must be hidden_size");
  }
}

void ReadConvolution(ConfigReader& config, TransformerConfig* body) {
  for (const std::string_view key : {"conv_kernel_size", "conv_act", "conv_groups"}) {
    if (config.IsNull(key)) config.Fail(key, "must not be null");
  }
  const int64_t taps = config.Int("conv_kernel_size", 0, 0, 1024);
  if (taps == 0) return;
  if (taps % 2 == 0) config.Fail("conv_kernel_size", "must be odd");
  if (ReadSize(config, "conv_groups", 1) != 1) config.Fail("conv_groups", "must be 1");
  body->convolution = {.reach = taps / 2,
                       .activation = ReadActivation(config, "conv_act", "tanh"),
                       .epsilon = body->epsilon};
}

// Masked language models that are not `legacy` have no decoder of their own and are not served.
const HeadLayout& HeadsOf(bool legacy) {
  static const HeadLayout kWithoutMasked = [] {
    HeadLayout layout = kDebertaHeads;
    layout.masked = {};
    return layout;
  }();
  return legacy ? kDebertaHeads : kWithoutMasked;
}

void ReadDistances(ConfigReader& config, const std::vector<std::string>& terms, int64_t most_tokens,
                   TransformerConfig* body) {
  DisentangledConfig relative{
      .buckets = config.Int("position_buckets", -1, -1, kMaxSize),
      .farthest = config.Int("max_relative_positions", -1, -1, kMaxSize),
      .of_queries = Has(terms, "c2p"),
      .of_keys = Has(terms, "p2c"),
      .shared = config.Bool("share_att_key", false),
      .normed = Has(Split(config.String("norm_rel_ebd", "none")), "layer_norm"),
      .epsilon = body->epsilon,
      .most_tokens = most_tokens,
      .scale = body->info.softmax_scale};
  relative.buckets = std::max<int64_t>(relative.buckets, 0);
  if (relative.farthest < 1) relative.farthest = most_tokens;
  if (relative.buckets == 1) config.Fail("position_buckets", "must not be 1");
  if (relative.buckets > 0 && relative.farthest - 1 <= relative.buckets / 2) {
    config.Fail("max_relative_positions", "leaves no distances above position_buckets / 2");
  }
  // Queries that share a centroid differ in their distance from a key.
  body->info.kernels = {KernelName::kVanilla};
  body->info.disentangled = true;
  body->disentangled = relative;
}

}  // namespace

absl::StatusOr<FamilyModel> BuildDeberta(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadBertKeys(config, {.vocabulary = 128'100,
                                                 .hidden = 1536,
                                                 .layers = 24,
                                                 .heads = 24,
                                                 .mlp_width = 6144,
                                                 .types = 0,
                                                 .epsilon = 1e-7});
  if (!config.status().ok()) return config.status();
  RefuseUnserved(config, body.info);
  InputRules rules{.vocabulary = body.words,
                   .types = std::max<int64_t>(body.types, 1),
                   .max_tokens = body.positions};
  if (!config.Bool("position_biased_input", true)) body.positions = 0;
  ReadConvolution(config, &body);
  const std::vector<std::string> terms = ReadTerms(config);
  // The scale counts each kind of term, even without relative attention.
  const int64_t kinds = 1 + (Has(terms, "c2p") ? 1 : 0) + (Has(terms, "p2c") ? 1 : 0);
  body.info.softmax_scale = 1 / std::sqrt(static_cast<double>(body.info.head_size() * kinds));
  if (config.Bool("relative_attention", false)) {
    ReadDistances(config, terms, rules.max_tokens, &body);
  }
  const HeadLayout& heads = HeadsOf(config.Bool("legacy", true));
  return BuildFamily(config, body, DebertaNames(), weights, std::move(rules), heads);
}

}  // namespace castor::encoder
