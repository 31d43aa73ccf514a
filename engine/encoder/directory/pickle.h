// What a state dict's pickle says of its tensors. Knows the few instructions and the three
// functions that torch.save writes for one; others are errors, and nothing is ever called.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::encoder {

struct PickledTensor {
  std::string storage;  // "FloatStorage"
  std::string key;      // of the archive's record
  int64_t offset = 0;   // in elements, like the strides
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// Bounds how deep values can nest: a layer's takes some 400 bytes.
inline constexpr size_t kMostPickleBytes = 4096;

absl::StatusOr<std::map<std::string, PickledTensor>> ReadPickledTensors(std::string_view pickle);

}  // namespace castor::encoder
