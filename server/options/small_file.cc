#include "server/options/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace castor::server {
namespace {

constexpr off_t kMaxBytes = 1 << 20;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  // Opening a pipe would wait for its other end; do not open one.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return Bad(strerror(errno));
  std::string text;
  absl::Status status;
  struct stat about {};
  if (fstat(file, &about) != 0) {
    status = Bad(strerror(errno));
  } else if (!S_ISREG(about.st_mode)) {
    status = Bad("is not a regular file");
  } else {
    // Read one byte more than is allowed: a file can grow, and some files report a size of 0.
    text.resize(kMaxBytes + 1);
    size_t filled = 0;
    for (ssize_t got = 1; got > 0 && filled < text.size(); filled += static_cast<size_t>(got)) {
      got = read(file, text.data() + filled, text.size() - filled);
      if (got < 0) {
        status = Bad(strerror(errno));
        break;
      }
    }
    text.resize(filled);
    if (filled > kMaxBytes) status = Bad("is larger than 1 MiB");
  }
  close(file);
  if (!status.ok()) return status;
  return text;
}

}  // namespace castor::server
