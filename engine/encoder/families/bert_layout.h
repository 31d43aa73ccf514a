// What BERT and RoBERTa have in common: the keys of config.json, and the names of weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {

// What a configuration of Hugging Face's has where a key is missing; here BertConfig.
struct BertDefaults {
  int64_t vocabulary = 30522;
  int64_t hidden = 768;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t mlp_width = 3072;
  int64_t types = 2;
  double epsilon = 1e-12;
};

// The position_embedding_type must be `positions`. Errors go to the reader.
PostNormConfig ReadBertKeys(ConfigReader& config, const BertDefaults& defaults,
                            std::string_view positions = "absolute");

// `prefixes` must live as long as the result.
PostNormNames BertNames(std::span<const std::string_view> prefixes);

}  // namespace castor::encoder
