#include "client/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace castor::client {
namespace {

constexpr size_t kBlock = 64 << 10;  // bytes to read at a time

absl::Status Failed(const char* what, const std::string& name, int error) {
  const std::string message =
      absl::StrCat("cannot ", what, " ", name, ": ", std::generic_category().message(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

std::string Quoted(const std::string& path) { return absl::StrCat("'", path, "'"); }

int OpenAt(const std::string& path, int flags) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

absl::Status WriteAll(int descriptor, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("write", name, errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  const int descriptor = OpenAt(path, O_RDONLY);
  if (descriptor < 0) return Failed("open", Quoted(path), errno);
  return InputFile(descriptor, Quoted(path));
}

InputFile InputFile::StandardInput() {
  // A closed descriptor has no copy; reading will report that.
  return InputFile(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0), "standard input");
}

InputFile::InputFile(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)) {}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::move(other.name_)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::Append(size_t size, std::string* bytes) {
  char block[kBlock];
  while (size > 0) {
    const ssize_t got = read(descriptor_, block, std::min(size, kBlock));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", name_, errno);
    if (got == 0) break;
    bytes->append(block, static_cast<size_t>(got));
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> pieces) {
  const int descriptor = OpenAt(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (descriptor < 0) return Failed("write", Quoted(path), errno);
  absl::Status status;
  for (const std::string_view piece : pieces) {
    if (status.ok()) status = WriteAll(descriptor, piece, Quoted(path));
  }
  // Some file systems report only now that there was no room.
  if (close(descriptor) != 0 && status.ok()) status = Failed("write", Quoted(path), errno);
  return status;
}

absl::Status WriteStandardOutput(std::string_view bytes) {
  return WriteAll(STDOUT_FILENO, bytes, "to standard output");
}

}  // namespace castor::client
