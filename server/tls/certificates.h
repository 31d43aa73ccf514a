// A TLS listener's certificate and key, and the authorities of its clients, from PEM files.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/auth/live_files.h"
#include "server/options/access_options.h"
#include "server/transport/call.h"

struct ssl_st;  // OpenSSL's SSL

namespace castor::server {

using WallTime = std::chrono::system_clock::time_point;

struct Certificates {
  std::string chain;  // PEM, as read
  std::string key;
  std::string client_ca;
  WallTime expires{};            // the server's certificate
  WallTime client_ca_expires{};  // the first of the authorities to do so; unset without any
};

// Takes the texts of the three files. INVALID_ARGUMENT names the flag of the one that is no PEM,
// has expired or is not valid yet, or says that key and certificate are no pair. A function of its
// arguments.
absl::StatusOr<Certificates> ParseCertificates(std::string_view certificate, std::string_view key,
                                               std::string_view client_ca, WallTime now);

using LiveCertificates = LiveFiles<Certificates>;
absl::StatusOr<std::unique_ptr<LiveCertificates>> OpenCertificates(const TlsFiles& files);

// The security of a listener's connections: TLS 1.2 and 1.3 with the certificates as they are when
// a connection begins; with a client_ca, only clients with a certificate of its authorities get in.
// For one listener. `certificates` must outlive the gRPC server. Null: plaintext.
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const LiveCertificates* certificates);

// The names in the certificate of a connection's peer, once its handshake has verified it; nothing
// if it has shown none.
std::optional<CertificateNames> NamesOfPeer(ssl_st* connection);

// From now on OpenSSL speaks no TLS older than 1.3 in this process, also with a collector of
// traces. gRPC 1.51 has no such setting. False if OpenSSL refuses the setting.
bool RequireTls13();

}  // namespace castor::server
