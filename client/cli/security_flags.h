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

  // Sets the options' TLS and tokens. A token itself comes only from the environment, because other
  // users can read command lines. Throws UsageError when --cert or --cert-key is missing.
  void ApplyTo(client::ClientOptions* options) const;
};

void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, const std::string& group);

// A hint for gRPC's or curl's message about a failed connection; "" if there is none.
std::string HandshakeHint(std::string_view message, const client::ClientOptions& options);

// The same for UNAUTHENTICATED and PERMISSION_DENIED.
std::string AccessHint(grpc::StatusCode code, const client::ClientOptions& options);

}  // namespace castor::cli
