// Reads the bytes of a TensorInput front to back, from memory or from a file.
//
// A file is read with pread and never mapped, because other processes may truncate it at any time:
// a mapping would raise SIGBUS then, whereas pread reports an error. Used by one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"

namespace castor {

// The wire's path of a tensor's bytes: for the field "query", "query.raw" or "query.shared_memory".
std::string DataField(const TensorInput& input, std::string_view field);

class TensorReader {
 public:
  // `field` is the tensor's path, such as "query", for errors. Both must outlive the reader.
  TensorReader(const TensorInput& input, std::string_view field) : input_(input), field_(field) {}

  // Reads the next `size` bytes; the input must have that many left. INVALID_FIELD if a file ends
  // too early or cannot be read; the contents of `out` are then unspecified.
  absl::Status Read(size_t size, std::byte* out);
  void Skip(size_t size);

 private:
  template <typename Use>
  void TakePieces(size_t size, Use use);
  absl::Status ReadFile(size_t size, std::byte* out);

  const TensorInput& input_;
  const std::string_view field_;
  size_t piece_ = 0;  // the current piece
  size_t used_ = 0;   // bytes read of that piece, or of the file's range
};

}  // namespace castor
