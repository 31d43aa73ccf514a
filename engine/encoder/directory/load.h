// Loads a model directory as Hugging Face and sentence-transformers lay it out:
//
//   config.json                  the architecture; `model_type` picks the family
//   model.safetensors            the weights, or shards named by model.safetensors.index.json
//   tokenizer.json               the tokenizer; its padding and truncation length are ignored
//   modules.json                 optional: which modules follow the transformer
//   1_Pooling/config.json        optional: how rows are pooled, or how SPLADE weighs words
//   2_Dense/                     if modules.json names it: config.json and model.safetensors
//   sparse_linear.safetensors, colbert_linear.safetensors    BGE-M3's layers
//   sentence_bert_config.json    optional: max_seq_length
//   config_sentence_transformers.json    optional: prompts
//
// Anything missing, unknown or of the wrong shape is an error that names the file and the key.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/statusor.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/engine.h"

namespace castor::encoder {

// Reads the directory and puts the weights on `device` as `source.dtype` (kFloat32 or kBFloat16).
// Every attention layer runs through `attention`. Takes seconds; called on the device's thread.
absl::StatusOr<std::shared_ptr<Model>> LoadModel(const ModelSource& source, at::Device device,
                                                 AttentionFn attention);

}  // namespace castor::encoder
