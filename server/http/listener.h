// An HTTP/1.1 listener: an address, the connections on it, and the limits that hold before any
// handler runs. It has the same acceptor, the same Connections and the same certificates as gRPC's.
// Boost.Beast parses requests, and OpenSSL encrypts.
//
//   acceptor's thread    hands a connection over
//   listener's threads   run connections, each on one thread at a time (a strand)
//   any thread           answers, through Responder
//
// A connection carries one request at a time. It ends when its peer is silent for `idle`, sends
// what is not HTTP, or has got an answer to a request whose body was not read.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/exchange.h"
#include "server/metrics/metrics.h"
#include "server/options/access_options.h"
#include "server/tls/certificates.h"
#include "server/transport/connections.h"

namespace castor::server::http {

struct ListenerSettings {
  std::string address;  // HOST:PORT
  int threads = 1;
  std::chrono::milliseconds handshake{10'000};
  std::chrono::milliseconds idle{60'000};  // for the next request's header to arrive whole
  TlsVersion tls_min_version = TlsVersion::k12;
  bool ask_for_certificates = true;  // with a client_ca
};

class Listener {
 public:
  // Serves when it returns. UNAVAILABLE when the address cannot be bound. `certificates` (null:
  // plaintext), `connections`, which their owner watches, and `metrics` (null: connections are not
  // counted) must outlive it.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const ListenerSettings& settings,
                                                        const LiveCertificates* certificates,
                                                        MakeExchange make, Connections& connections,
                                                        Metrics* metrics);

  virtual ~Listener() = default;  // Stop

  virtual int port() const = 0;

  // Refuses new connections, ends those without a request, and the others with their answers.
  virtual void Leave() = 0;
  // Cuts what is left, and ends the threads.
  virtual void Stop() = 0;
};

}  // namespace castor::server::http
