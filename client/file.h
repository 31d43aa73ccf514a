// Reading and writing of files, pipes and devices. Errors name the file and the system's reason:
// "cannot read 'q.npy': Is a directory". Reading a pipe waits for its writer.
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
  // so a false claim about the file's size costs nothing.
  absl::Status Append(size_t size, std::string* bytes);

  const std::string& name() const { return name_; }  // for messages: the path in quotes

 private:
  InputFile(int descriptor, std::string name);

  int descriptor_;  // -1: moved from, or standard input is closed
  std::string name_;
};

// A file, pipe or device that is written piece by piece. After an error, the bytes written so far
// remain. Movable; for one thread at a time.
class OutputFile {
 public:
  // Creates or overwrites it.
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  static OutputFile StandardOutput();

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  absl::Status Append(std::string_view bytes);
  // Whether written bytes can be replaced; false for a pipe.
  bool rewinds() const;
  // Replaces the file's first bytes.
  absl::Status Replace(std::string_view bytes);
  // Some file systems report a full disk only here.
  absl::Status Close();

 private:
  OutputFile(int descriptor, std::string name);

  int descriptor_;  // -1: closed, or moved from
  std::string name_;
};

// Reads a whole file. An error if it has more than `most` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most);

// Creates or overwrites the file. After an error, the bytes written so far remain.
absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> pieces);

absl::Status WriteStandardOutput(std::string_view bytes);

}  // namespace castor::client
