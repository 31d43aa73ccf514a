// Chooses a model's head and takes its weights: what modules.json asks for behind the transformer,
// else what the class in config.json's `architectures` has behind its body.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/directory.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/heads/head.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

struct LoadedHead {
  std::unique_ptr<Head> head;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // on the device
};

// `config` and `files` are the transformer's, `prefix` stands before its body's tensors. Weights
// become float32, but those of a masked language model `dtype`: never 8 bits. Errors name the file
// and the key or the tensor.
absl::StatusOr<LoadedHead> LoadHead(const Directory& directory, ConfigReader& config,
                                    const hf::Safetensors& files, const FamilyModel& model,
                                    const std::string& prefix, at::ScalarType dtype,
                                    at::Device device);

}  // namespace castor::encoder
