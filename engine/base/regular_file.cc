#include "engine/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace castor {
namespace {

std::string SystemText(int error) { return std::generic_category().message(error); }

absl::Status Refuse(const std::string& path, std::string_view problem) {
  return absl::InvalidArgumentError(path + ": " + std::string(problem));
}

absl::Status OpenError(const std::string& path, int error) {
  if (error != ENOENT && error != ENOTDIR) {
    return Refuse(path, "cannot be opened: " + SystemText(error));
  }
  return absl::NotFoundError(
      path + (NameExists(path) ? ": is a link to nothing" : ": cannot be opened: no such file"));
}

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

// Whether the file is the three lines of text that a clone has in place of a large file until
// git-lfs has fetched it.
bool IsGitLfsPointer(int descriptor) {
  constexpr std::string_view kBegins = "version https://git-lfs.github.com/spec/";
  std::array<char, kBegins.size()> bytes;
  return pread(descriptor, bytes.data(), bytes.size(), 0) == std::ssize(bytes) &&
         std::string_view(bytes.data(), bytes.size()) == kBegins;
}

absl::Status CheckKind(const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return absl::OkStatus();
  return Refuse(path, absl::StrCat("is ", std::string(KindOf(mode)), ", not a regular file"));
}

}  // namespace

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path, int64_t max_bytes) {
  // Check the kind before opening, which can have side effects on a device. The second check
  // catches a pipe that replaces the file in between.
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return OpenError(path, errno);
  if (absl::Status status = CheckKind(path, info.st_mode); !status.ok()) return status;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return OpenError(path, errno);
  RegularFile file(descriptor, 0);
  if (fstat(descriptor, &info) != 0) return OpenError(path, errno);
  if (absl::Status status = CheckKind(path, info.st_mode); !status.ok()) return status;
  file.size_ = info.st_size;
  if (file.size_ > max_bytes) {
    return Refuse(path,
                  absl::StrCat("has ", file.size_, " bytes; at most ", max_bytes, " can be read"));
  }
  if (IsGitLfsPointer(descriptor)) {
    return Refuse(path,
                  "is a git-lfs pointer, not the file itself: run `git lfs pull` in its clone");
  }
  return file;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes) {
  absl::StatusOr<RegularFile> file = RegularFile::Open(path, max_bytes);
  if (!file.ok()) return file.status();
  std::string bytes(static_cast<size_t>(file->size()), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file->descriptor(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Refuse(path, "cannot be read: " + SystemText(errno));
    if (count == 0) return Refuse(path, "was cut short while it was read");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

bool NameExists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

}  // namespace castor
