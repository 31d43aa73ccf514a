// Weights in safetensors files, read by the reference implementation (the Rust crate
// `safetensors`): one file, or shards that an index names.
//
// Immutable and thread-safe. Files are read into memory as a whole and freed with the object. They
// are not mapped, since truncating a mapped file would kill the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct castor_hf_safetensors;

namespace castor::hf {

// One stored tensor; views into the file's memory.
struct StoredTensor {
  std::string_view dtype;  // as the format spells it: "F32", "F16", "BF16", "I64", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, little-endian, of no particular alignment
  std::string_view file;            // its path, for messages
};

// The tensors of one or more files, by name. Immutable and thread-safe.
class Safetensors final {
 public:
  // Opens `directory`/model.safetensors, or the shards of `directory`/model.safetensors.index.json.
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Safetensors>> OpenModel(const std::string& directory);

  // Opens one file.
  static absl::StatusOr<std::unique_ptr<Safetensors>> OpenFile(const std::string& path);

  Safetensors(const Safetensors&) = delete;
  Safetensors& operator=(const Safetensors&) = delete;

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }

  // nullptr if there is no tensor of that name.
  const StoredTensor* Find(std::string_view name) const;

 private:
  struct Close {
    void operator()(castor_hf_safetensors* handle) const;
  };
  struct File {
    std::string path;
    std::unique_ptr<castor_hf_safetensors, Close> handle;
  };

  Safetensors() = default;
  absl::Status AddFile(const std::string& path);
  absl::Status AddShards(const std::string& directory, const std::string& index);

  std::vector<std::unique_ptr<const File>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace castor::hf
