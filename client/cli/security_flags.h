// The flags of TLS and of tokens, which castor and castor-load share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "client/client.h"

namespace castor::cli {

struct SecurityFlags {
  bool tls = false;
  client::TlsOptions files{};  // any of them implies TLS
  std::string token_file{};
  bool allow_plaintext_token = false;

  bool secure() const;

  // Sets the options' tls and tokens. The token itself comes from the environment alone: a command
  // line is there for all to read. Throws UsageError when --cert or --cert-key is missing.
  void ApplyTo(client::ClientOptions* options) const;
};

void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, const std::string& group);

// What may help after a connection failed, by gRPC's or curl's message; "" if nothing is known to.
std::string HandshakeHint(std::string_view message, const client::ClientOptions& options);

// The same for UNAUTHENTICATED and PERMISSION_DENIED.
std::string AccessHint(grpc::StatusCode code, const client::ClientOptions& options);

}  // namespace castor::cli
