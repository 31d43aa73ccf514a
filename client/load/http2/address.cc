#include "client/load/http2/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

#include "client/load/base/errors.h"

namespace castor::load {
namespace {

constexpr std::string_view kUnix = "unix:", kAbstract = "unix-abstract:";

// The target without the name of gRPC's resolver, and without the slashes after it.
std::string_view HostAndPort(std::string_view target) {
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    while (target.starts_with('/')) target.remove_prefix(1);
    break;
  }
  return target;
}

Address UnixAddress(const std::string& target, std::string_view name, bool abstract) {
  Address address;
  sockaddr_un socket{};
  socket.sun_family = AF_UNIX;
  const size_t first = abstract ? 1 : 0;  // an abstract name begins with a zero
  if (name.empty() || first + name.size() >= sizeof(socket.sun_path)) {
    throw ServerError("cannot connect to " + target + ": a socket's name has 1 to " +
                      std::to_string(sizeof(socket.sun_path) - 2) + " characters");
  }
  std::memcpy(socket.sun_path + first, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + first + name.size());
  if (!abstract) ++address.size;  // the zero at its end
  std::memcpy(&address.bytes, &socket, sizeof(socket));
  return address;
}

}  // namespace

bool Address::operator==(const Address& other) const {
  return size == other.size && std::memcmp(&bytes, &other.bytes, size) == 0;
}

std::vector<Address> Resolve(const std::string& target) {
  const std::string_view view = target;
  if (view.starts_with(kAbstract)) {
    return {UnixAddress(target, view.substr(kAbstract.size()), /*abstract=*/true)};
  }
  if (view.starts_with(kUnix)) {
    std::string_view path = view.substr(kUnix.size());
    if (path.starts_with("//")) path.remove_prefix(2);  // unix:///path
    return {UnixAddress(target, path, /*abstract=*/false)};
  }
  const std::string_view rest = HostAndPort(view);
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == rest.size()) {
    throw ServerError("cannot connect to " + target +
                      ": a server is HOST:PORT, unix:PATH or unix-abstract:NAME");
  }
  std::string host(rest.substr(0, colon));
  const std::string port(rest.substr(colon + 1));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list); error != 0) {
    throw ServerError("cannot connect to " + target + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

std::string AuthorityOf(const std::string& target) {
  if (target.starts_with(kUnix) || target.starts_with(kAbstract)) return "localhost";
  return std::string(HostAndPort(target));
}

std::string HostOf(const std::string& target) {
  const std::string authority = AuthorityOf(target);
  std::string host = authority.substr(0, authority.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

int StartConnecting(const Address& address) {
  const int made = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  const int on = 1;
  if (address.bytes.ss_family != AF_UNIX) {
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (connect(made, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0 ||
      errno == EINPROGRESS) {
    return made;
  }
  const int error = errno;
  close(made);
  errno = error;
  return -1;
}

}  // namespace castor::load
