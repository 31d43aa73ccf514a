// Chooses a model's head and takes its weights: the modules that follow the transformer in
// modules.json, else the head of the class in config.json's `architectures`.
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

// `config` and `files` are the transformer's; `prefix` precedes the names of its body's tensors.
// Weights become float32, or `dtype` for a masked language model, and are never quantized. Errors
// name the file and the key or the tensor.
absl::StatusOr<LoadedHead> LoadHead(const Directory& directory, ConfigReader& config,
                                    const hf::Safetensors& files, const FamilyModel& model,
                                    const std::string& prefix, at::ScalarType dtype,
                                    at::Device device);

}  // namespace castor::encoder
