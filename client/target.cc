#include "client/target.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string>

namespace castor::client {
namespace {

// HOST, HOST:PORT, [HOST]:PORT or an IPv6 address.
std::string_view WithoutPort(std::string_view address) {
  if (address.starts_with('[')) {
    const size_t end = address.find(']');
    return end == std::string_view::npos ? address : address.substr(1, end - 1);
  }
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const in_addr four = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return (ntohl(four.s_addr) >> 24) == 127 || four.s_addr == INADDR_ANY;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six);
}

bool AreEqual(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr);
}

// Whether one of this machine's interfaces has the address.
bool IsOwn(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && AreEqual(each->ifa_addr, address)) return true;
  }
  return false;
}

bool IsOwnHost(std::string_view address) {
  const std::string host(WithoutPort(address));
  if (host == "localhost") return true;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  bool is_four = inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1;
  if (!is_four && inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return false;
  if (!is_four && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof(four.sin_addr));
    is_four = true;
  }
  const auto* const parsed =
      is_four ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
  return IsLoopback(parsed) || IsOwn(parsed);
}

}  // namespace

bool IsOnThisMachine(std::string_view target) {
  if (target.starts_with("unix:") || target.starts_with("unix-abstract:")) return true;
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    if (target.starts_with("//")) {  // dns://SERVER/NAME; the server may say anything of the name
      const size_t slash = target.find('/', 2);
      if (slash != 2) return false;
      target.remove_prefix(3);
    }
    break;
  }
  // ipv4: and ipv6: may name several.
  for (;;) {
    const size_t comma = target.find(',');
    if (!IsOwnHost(target.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    target.remove_prefix(comma + 1);
  }
}

}  // namespace castor::client
