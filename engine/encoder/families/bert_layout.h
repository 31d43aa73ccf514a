// What BERT and RoBERTa have in common: the keys of config.json, and the names of weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {

// Missing keys have the defaults of Hugging Face's BertConfig; `vocabulary` is that of vocab_size.
// The position_embedding_type must be `positions`. Errors go to the reader.
PostNormConfig ReadBertKeys(ConfigReader& config, int64_t vocabulary,
                            std::string_view positions = "absolute");

// `prefixes` must live as long as the result.
PostNormNames BertNames(std::span<const std::string_view> prefixes);

}  // namespace castor::encoder
