#include "client/target.h"

#include <arpa/inet.h>

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

bool IsLoopback(std::string_view address) {
  const std::string host(WithoutPort(address));
  if (host == "localhost") return true;
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
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
    if (!IsLoopback(target.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    target.remove_prefix(comma + 1);
  }
}

}  // namespace castor::client
