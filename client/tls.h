// What a client needs for TLS: files in PEM, which are looked at again when they change.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace castor::client {

struct TlsOptions {
  // The authorities to trust. Empty: $SSL_CERT_FILE, or else the system's.
  std::string ca_file{};
  // For servers that ask for a client's certificate: it, with what leads to its authority, and its
  // key, not encrypted. Both or none.
  std::string certificate_file{}, key_file{};
  // What the server's certificate must say. Empty: the target's host.
  std::string server_name{};
};

// ca_file, or $SSL_CERT_FILE; empty: the system's.
std::string AuthoritiesOf(const TlsOptions& options);

// OK if the files can be used as they are on disk now, else FAILED_PRECONDITION that names the file
// and says what is wrong. Any thread.
absl::Status CheckTlsFiles(const TlsOptions& options);

}  // namespace castor::client
