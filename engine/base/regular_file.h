// Files that are read whole when the process starts: configurations, tokenizers, weights.
//
// Only regular files, or links to one: a pipe could block the start for ever, and a device may have
// no end. Opening does not wait, and the file that was checked is the file that is read, whatever
// its name refers to later. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace castor {

// Owns a descriptor of a regular file, open for reading.
class RegularFile {
 public:
  // NOT_FOUND when there is no `path`, or it links to nothing; INVALID_ARGUMENT when it is not a
  // regular file, has more than `max_bytes`, cannot be opened, or is one of git-lfs's pointers in
  // place of the file. Errors begin with the path.
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

// The contents of `path`. Errors as for Open, and INVALID_ARGUMENT when the file is cut short while
// it is read.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes);

// Whether the name exists, even as a link to nothing. For optional files: if one is there it is
// read, and the reader reports what is wrong with it.
bool NameExists(const std::string& path);

}  // namespace castor
