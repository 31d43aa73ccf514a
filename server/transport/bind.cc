#include "server/transport/bind.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace castor::server {
namespace {

absl::Status Failed(int error) { return absl::UnavailableError(strerror(error)); }

std::string WithoutBrackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// The inode of the socket at the path; 0: there is none.
ino_t InodeAt(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

// OK if no server answers at the path.
absl::Status CheckDead(const std::string& path, const sockaddr_un& at) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return errno == ENOENT ? absl::OkStatus() : Failed(errno);
  if (!S_ISSOCK(about.st_mode))
    return absl::UnavailableError("the path exists and is not a socket");
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return Failed(errno);
  const int error =
      connect(probe, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0 ? 0 : errno;
  close(probe);
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  // EAGAIN: its queue is full, so a server is alive.
  if (error != 0 && error != EAGAIN) return Failed(error);
  return absl::UnavailableError("another server uses this address");
}

// A descriptor, or -1 with errno set.
int Listen(const addrinfo& at, int port, bool alone) {
  const int descriptor = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  const int yes = 1;
  // Reuse a port whose last connections are in TIME_WAIT; a port with a listener stays taken.
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (at.ai_family == AF_INET6) {
    const int only = alone ? 0 : 1;  // there may be an IPv4 socket on the same port
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  sockaddr_storage to{};
  std::memcpy(&to, at.ai_addr, at.ai_addrlen);
  // The port has the same offset in both families.
  reinterpret_cast<sockaddr_in*>(&to)->sin_port = htons(static_cast<uint16_t>(port));
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&to), at.ai_addrlen) == 0 &&
      listen(descriptor, SOMAXCONN) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

int PortOf(int descriptor) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ListeningSockets>> ListeningSockets::Open(
    const std::string& address) {
  std::unique_ptr<ListeningSockets> sockets(new ListeningSockets);
  const size_t colon = address.rfind(':');
  absl::Status listening;
  if (address.starts_with("unix:")) {
    listening = sockets->ListenAt(address.substr(address.starts_with("unix://") ? 7 : 5));
  } else {
    listening =
        sockets->ListenOn(WithoutBrackets(address.substr(0, colon)), address.substr(colon + 1));
  }
  if (!listening.ok()) return listening;
  return sockets;
}

absl::Status ListeningSockets::ListenAt(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  constexpr size_t kLongest = sizeof(at.sun_path) - 1;
  if (path.size() > kLongest) {
    return absl::UnavailableError("the path is too long by " +
                                  std::to_string(path.size() - kLongest) + " bytes");
  }
  path.copy(at.sun_path, kLongest);
  if (absl::Status dead = CheckDead(path, at); !dead.ok()) return dead;
  unlink(path.c_str());
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return Failed(errno);
  descriptors_.push_back(descriptor);
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(descriptor, SOMAXCONN) != 0) {
    return Failed(errno);
  }
  path_ = path;
  inode_ = InodeAt(path);
  return absl::OkStatus();
}

absl::Status ListeningSockets::ListenOn(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed == EAI_SYSTEM) return Failed(errno);
  if (failed != 0) return absl::UnavailableError(gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);

  port_ = ntohs(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_port);
  int lacking = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int descriptor = Listen(*at, port_, found->ai_next == nullptr);
    if (descriptor >= 0) {
      descriptors_.push_back(descriptor);
      port_ = PortOf(descriptor);
    } else if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
      lacking = errno;
    } else {
      return Failed(errno);
    }
  }
  return descriptors_.empty() ? Failed(lacking) : absl::OkStatus();
}

void ListeningSockets::RemovePath() {
  const ino_t inode = std::exchange(inode_, 0);
  if (inode != 0 && InodeAt(path_) == inode) unlink(path_.c_str());
}

ListeningSockets::~ListeningSockets() {
  RemovePath();
  for (const int descriptor : descriptors_) close(descriptor);
}

}  // namespace castor::server
