#include "server/transport/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace castor::server {
namespace {

absl::Status Failed(absl::string_view cause) { return absl::UnavailableError(cause); }

constexpr const char* kTaken = "another server uses this address";

// Beside `path`, so that it can be moved there.
std::string TemporaryOf(const std::string& path) { return path + "." + std::to_string(getpid()); }

// A descriptor that holds the lock on `file`; -1 with errno set, EWOULDBLOCK where it is held.
int Lock(const std::string& file) {
  for (;;) {
    const int lock = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) return -1;
    struct stat held {};
    struct stat there {};
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
      // The holder before us removes the file as it leaves: then this is a lock on nothing.
      if (fstat(lock, &held) == 0 && stat(file.c_str(), &there) == 0 &&
          held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
        return lock;
      }
    } else {
      const int error = errno;
      close(lock);
      errno = error;
      return -1;
    }
    close(lock);
  }
}

// OK if nobody answers at the path.
absl::Status CheckDead(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed(strerror(errno));
  }
  if (!S_ISSOCK(about.st_mode)) return Failed("the path exists and is not a socket");
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return Failed(strerror(errno));
  const int error =
      connect(probe, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 ? 0 : errno;
  close(probe);
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  // EAGAIN: its queue is full, so a server is alive.
  return Failed(error == 0 || error == EAGAIN ? kTaken : strerror(error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixSocket>> UnixSocket::Listen(const std::string& address) {
  std::string path = address.substr(address.find(':') + 1);
  if (path.starts_with("//")) path.erase(0, 2);  // unix:///absolute
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  const std::string temporary = TemporaryOf(path);
  if (temporary.size() > kLongest) {
    return Failed("the path is too long by " + std::to_string(temporary.size() - kLongest) +
                  " bytes");
  }
  const int lock = Lock(path + ".lock");
  if (lock < 0) {
    return Failed(errno == EWOULDBLOCK ? std::string(kTaken) : path + ".lock: " + strerror(errno));
  }
  std::unique_ptr<UnixSocket> ours(new UnixSocket(path, lock));
  if (absl::Status dead = CheckDead(path); !dead.ok()) return dead;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  temporary.copy(to.sun_path, kLongest);
  struct stat about {};
  ours->descriptor_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (ours->descriptor_ < 0 ||
      bind(ours->descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 ||
      listen(ours->descriptor_, SOMAXCONN) != 0 || lstat(to.sun_path, &about) != 0 ||
      rename(to.sun_path, path.c_str()) != 0) {
    return Failed(strerror(errno));
  }
  ours->device_ = about.st_dev;
  ours->inode_ = about.st_ino;
  return ours;
}

UnixSocket::~UnixSocket() {
  struct stat there {};
  if (inode_ != 0 && lstat(path_.c_str(), &there) == 0 && there.st_ino == inode_ &&
      there.st_dev == device_) {
    unlink(path_.c_str());
  }
  unlink((path_ + ".lock").c_str());  // while it is held
  close(lock_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace castor::server
