// Named tensors that torch.save wrote: a state dict. Read without Python: of the pickle just what
// such a file needs, so that nothing in it can be run, and all else is an error.
//
// Immutable and thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

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

}  // namespace castor::encoder
