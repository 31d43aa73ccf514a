// What a listener's connections are secured with: the one place that decides it.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/tls/certificates.h"

namespace castor::server {

// TLS 1.2 and 1.3 with the certificates as they are when a connection begins; with a client_ca,
// only clients with a certificate of its authorities get in. For one listener. `certificates` must
// outlive the gRPC server. Null: plaintext.
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const LiveCertificates* certificates);

// From now on OpenSSL speaks no TLS older than 1.3 in this process, to a collector of traces
// either: gRPC 1.51 cannot be told. False: it cannot be told so either.
bool RequireTls13();

}  // namespace castor::server
