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

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  const int descriptor = OpenAt(path, O_RDONLY);
  if (descriptor < 0) return Failed("open", Quoted(path), errno);
  return InputFile(descriptor, Quoted(path));
}

InputFile InputFile::StandardInput() {
  // If the descriptor is closed, there is no copy, and reading reports it.
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

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  const int descriptor = OpenAt(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (descriptor < 0) return Failed("write", Quoted(path), errno);
  return OutputFile(descriptor, Quoted(path));
}

OutputFile OutputFile::StandardOutput() {
  return OutputFile(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "to standard output");
}

OutputFile::OutputFile(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::move(other.name_)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status OutputFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("write", name_, errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

bool OutputFile::rewinds() const { return lseek(descriptor_, 0, SEEK_CUR) >= 0; }

absl::Status OutputFile::Replace(std::string_view bytes) {
  if (lseek(descriptor_, 0, SEEK_SET) < 0) return Failed("write", name_, errno);
  return Append(bytes);
}

absl::Status OutputFile::Close() {
  if (close(std::exchange(descriptor_, -1)) == 0) return absl::OkStatus();
  return Failed("write", name_, errno);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  std::string bytes;
  if (absl::Status s = file->Append(most + 1, &bytes); !s.ok()) return s;
  if (bytes.size() <= most) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(file->name(), " has more than ", most, " bytes"));
}

absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> pieces) {
  absl::StatusOr<OutputFile> file = OutputFile::Create(path);
  if (!file.ok()) return file.status();
  absl::Status status;
  for (const std::string_view piece : pieces) status.Update(file->Append(piece));
  status.Update(file->Close());
  return status;
}

absl::Status WriteStandardOutput(std::string_view bytes) {
  return OutputFile::StandardOutput().Append(bytes);
}

}  // namespace castor::client
