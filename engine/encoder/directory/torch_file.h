// Named tensors that torch.save wrote: a state dict. Read without Python: of the pickle just what
// such a file needs, so that nothing in it can be run, and all else is an error.
//
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

class TorchFile final : public hf::StoredTensors {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<TorchFile>> Open(const std::string& path);

 private:
  TorchFile() = default;

  std::string path_;
  std::map<std::string, std::string> records_;  // the tensors' bytes
};

// What a state dict's pickle says of its tensors. Knows the few instructions and the three
// functions that torch.save writes for one; others are errors, and nothing is ever called.
//
// Pure; any thread.
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
