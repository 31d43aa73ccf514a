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

#include "server/transport/bind.h"

namespace castor::server {
namespace {

absl::Status CannotListenAt(const std::string& path, std::string_view cause) {
  return CannotListen("unix:" + path, cause);
}

constexpr std::string_view kTaken = "another server uses this address";

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
    return errno == ENOENT ? absl::OkStatus() : CannotListenAt(path, strerror(errno));
  }
  if (!S_ISSOCK(about.st_mode)) return CannotListenAt(path, "the path exists and is not a socket");
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return CannotListenAt(path, strerror(errno));
  const int error =
      connect(probe, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 ? 0 : errno;
  close(probe);
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  // EAGAIN: its queue is full, so a server is alive.
  return CannotListenAt(path, error == 0 || error == EAGAIN ? kTaken : strerror(error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixSocket>> UnixSocket::Claim(const std::string& address) {
  std::string path = address.substr(address.find(':') + 1);
  if (path.starts_with("//")) path.erase(0, 2);  // unix:///absolute
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (const size_t length = TemporaryOf(path).size(); length > kLongest) {
    return CannotListenAt(
        path, "the path is too long by " + std::to_string(length - kLongest) + " bytes");
  }
  const int lock = Lock(path + ".lock");
  if (lock < 0) {
    return CannotListenAt(
        path, errno == EWOULDBLOCK ? std::string(kTaken) : path + ".lock: " + strerror(errno));
  }
  std::unique_ptr<UnixSocket> claimed(new UnixSocket(path, lock));
  if (absl::Status dead = CheckDead(path); !dead.ok()) return dead;
  return claimed;
}

UnixSocket::UnixSocket(std::string path, int lock)
    : path_(std::move(path)), temporary_(TemporaryOf(path_)), lock_(lock) {}

absl::Status UnixSocket::Publish() {
  struct stat ours {};
  if (lstat(temporary_.c_str(), &ours) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
    return CannotListenAt(path_, strerror(errno));
  }
  device_ = ours.st_dev;
  inode_ = ours.st_ino;
  return absl::OkStatus();
}

UnixSocket::~UnixSocket() {
  struct stat there {};
  if (inode_ != 0 && lstat(path_.c_str(), &there) == 0 && there.st_ino == inode_ &&
      there.st_dev == device_) {
    unlink(path_.c_str());
  }
  unlink((path_ + ".lock").c_str());  // while it is held
  close(lock_);
}

}  // namespace castor::server
