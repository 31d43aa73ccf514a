// Reads the bytes of a TensorInput front to back, wherever they lie: the one place that knows the
// kinds of source there are.
//
// A file is read with pread and never mapped: its other users may cut it at any time, and a mapping
// would answer that with SIGBUS where this answers with an error. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"

namespace castor {

// The wire's path of what holds the bytes of the tensor at `field`: "query.raw" or
// "query.shared_memory".
std::string DataField(const TensorInput& input, std::string_view field);

class TensorReader {
 public:
  // `field` is the tensor's path, such as "query", for errors. Both must outlive the reader.
  TensorReader(const TensorInput& input, std::string_view field) : input_(input), field_(field) {}

  // The next `size` bytes, of which the input must have as many left. INVALID_FIELD when a file
  // ends before them or cannot be read; what `out` then holds is of no meaning.
  absl::Status Read(size_t size, std::byte* out);
  void Skip(size_t size);

 private:
  template <typename Use>
  void TakePieces(size_t size, Use use);
  absl::Status ReadFile(size_t size, std::byte* out);

  const TensorInput& input_;
  const std::string_view field_;
  size_t piece_ = 0;  // the piece that comes next
  size_t used_ = 0;   // bytes of it, or of the file's range
};

}  // namespace castor
