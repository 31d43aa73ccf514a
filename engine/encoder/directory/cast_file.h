// A plain safetensors file of CAST layers: the weights that CAST adds to a model. It is served
// under a model's name, for requests that bring queries, keys and values.
//
// The file holds "layers.INDEX.surrogate_tokens", [N_c, heads, head_dim] in F32, F16 or BF16, for
// indices from 0 on without gaps; the layers' shapes may differ. Other tensors are ignored.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/cast/cast_layer.h"
#include "engine/engine.h"

namespace castor::encoder {

struct CastFile {
  ModelInfo info;  // of the family "cast_layers", which encodes nothing
  std::vector<std::shared_ptr<const attention::CastLayer>> layers;  // by index
};

// Whether `path` is for ReadCastFile and not for LoadModel: it ends in ".safetensors".
bool IsCastFile(const std::string& path);

// Errors name the file and the tensor.
absl::StatusOr<CastFile> ReadCastFile(const ModelSource& source);

}  // namespace castor::encoder
