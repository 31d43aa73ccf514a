#include "server/transport/bind.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace castor::server {
namespace {

std::string HostOf(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// `at` with this port.
sockaddr_storage WithPort(const addrinfo& at, int port) {
  sockaddr_storage to{};
  std::memcpy(&to, at.ai_addr, at.ai_addrlen);
  // The port has the same offset in both families.
  reinterpret_cast<sockaddr_in*>(&to)->sin_port = htons(static_cast<uint16_t>(port));
  return to;
}

// A descriptor, or -1 with errno set.
int Listen(const addrinfo& at, int port, bool alone) {
  const int descriptor = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  const int yes = 1;
  // A port whose last connections are in TIME_WAIT may be reused; one that somebody listens on may
  // not.
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (at.ai_family == AF_INET6) {
    const int only = alone ? 0 : 1;  // beside an IPv4 socket on the same port
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  const sockaddr_storage to = WithPort(at, port);
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

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  ListeningSockets sockets;
  if (address.starts_with("unix:")) {
    auto bound = UnixSocket::Listen(address);
    if (!bound.ok()) return bound.status();
    sockets.unix_socket_ = *std::move(bound);
    sockets.descriptors_ = {sockets.unix_socket_->descriptor()};
    return sockets;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = address.substr(address.rfind(':') + 1);
  const int failed = getaddrinfo(HostOf(address).c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(failed == EAI_SYSTEM ? strerror(errno) : gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);

  sockets.port_ = ntohs(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_port);
  int lacking = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int descriptor = Listen(*at, sockets.port_, found->ai_next == nullptr);
    if (descriptor >= 0) {
      sockets.descriptors_.push_back(descriptor);
      sockets.port_ = PortOf(descriptor);
    } else if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
      lacking = errno;
    } else {
      return absl::UnavailableError(strerror(errno));
    }
  }
  if (sockets.descriptors_.empty()) return absl::UnavailableError(strerror(lacking));
  return sockets;
}

ListeningSockets::~ListeningSockets() {
  if (unix_socket_ != nullptr) return;
  for (const int descriptor : descriptors_) close(descriptor);
}

}  // namespace castor::server
