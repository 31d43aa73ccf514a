// Files that are read as a whole when the process starts: configurations, tokenizers, weights.
//
// Only regular files and links to them: a pipe could block the start, and a device may have no end.
// Opening does not block, and the checked file is the one that is read, even if its name changes
// its meaning. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace castor {

// Owns a descriptor of a regular file, open for reading.
class RegularFile {
 public:
  // NOT_FOUND if there is no `path`, or it is a dangling link; INVALID_ARGUMENT if it is not a
  // regular file, has more than `max_bytes`, cannot be opened, or is a git-lfs pointer in place of
  // the file. Errors begin with the path.
  static absl::StatusOr<RegularFile> Open(const std::string& path, int64_t max_bytes);

  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) = delete;

  int descriptor() const { return descriptor_; }
  int64_t size() const { return size_; }  // when it was opened

 private:
  RegularFile(int descriptor, int64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  int64_t size_;
};

// The contents of `path`. Errors as for Open, and INVALID_ARGUMENT if the file is truncated while
// it is read.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes);

// Whether the name exists, even as a dangling link. For optional files: one that exists is read,
// and the reader reports its problems.
bool NameExists(const std::string& path);

}  // namespace castor
