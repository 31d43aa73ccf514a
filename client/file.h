// Reading and writing of files, pipes and devices. Errors name the file and the system's reason,
// "cannot read 'q.npy': Is a directory". Reading a pipe waits for its writer, as elsewhere on the
// system.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace castor::client {

// A file, pipe or device, read from beginning to end. Movable; for one thread at a time.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  static InputFile StandardInput();

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // Appends the next `size` bytes, fewer only at the end. Memory is allocated as the bytes arrive,
  // so it is safe to ask for as many as a file merely claims to have.
  absl::Status Append(size_t size, std::string* bytes);

  const std::string& name() const { return name_; }  // for messages: the path in quotes

 private:
  InputFile(int descriptor, std::string name);

  int descriptor_;  // -1: moved from, or standard input is closed
  std::string name_;
};

// Creates or overwrites the file. After an error, what was written so far stays in it.
absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> pieces);

absl::Status WriteStandardOutput(std::string_view bytes);

}  // namespace castor::client
