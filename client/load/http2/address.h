// Where a server listens, in gRPC's way of naming it.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace castor::load {

struct Address {
  sockaddr_storage bytes{};  // zero beyond `size`
  socklen_t size = 0;

  bool operator==(const Address& other) const;
};

// HOST:PORT (or dns:, ipv4:, ipv6: before it), unix:PATH or unix-abstract:NAME. A host that has
// several addresses has all of them here, at least one. Throws ServerError that names the target.
std::vector<Address> Resolve(const std::string& target);

// What HTTP/2 calls the authority: HOST:PORT, or localhost for a Unix socket.
std::string AuthorityOf(const std::string& target);
// Its host: what a certificate says.
std::string HostOf(const std::string& target);

// A socket that is connecting, and never blocks; -1 with errno where it cannot even begin.
int StartConnecting(const Address& address);

}  // namespace castor::load
