// TLS and bearer tokens of clients. Files that change are read again.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace castor::client {

struct TlsOptions {
  // The authorities to trust, in PEM. Empty: $SSL_CERT_FILE, or else the system's.
  std::string ca_file{};
  // The certificate for servers that ask for one, with its chain, and its key, which must not be
  // encrypted. Both or none.
  std::string certificate_file{}, key_file{};
  // The name that the server's certificate must have. Empty: the target's host.
  std::string server_name{};
};

// ca_file, or $SSL_CERT_FILE; empty: the system's.
std::string AuthoritiesOf(const TlsOptions& options);

// OK if the files can be used now, else FAILED_PRECONDITION that names the file and the cause.
// Thread-safe.
absl::Status CheckTlsFiles(const TlsOptions& options);

// A caller's bearer token, from a file that may change. Thread-safe. Its errors never show the
// token.
class TokenSource {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The file is read again after this time.
  static constexpr std::chrono::milliseconds kFresh{1000};

  // Uses the file if there is one, else `token`. Both may be empty: there is no token.
  TokenSource(std::string token, std::string file);

  bool empty() const { return token_.empty() && file_.empty(); }

  // The value of metadata `authorization`; "" if there is no token. FAILED_PRECONDITION, naming the
  // file, until a token has been read. Later, a file that cannot be read leaves the last token.
  absl::StatusOr<std::string> Header(Time now = std::chrono::steady_clock::now());

 private:
  const std::string token_, file_;
  std::mutex mu_;
  std::string header_;  // guarded by mu_; empty: never read
  Time read_{};         // guarded by mu_; when header_ was read
};

// Whether every address that a gRPC target names is on this machine: a Unix socket, localhost, a
// loopback address, 0.0.0.0 or ::, or an interface's own. A name that needs a resolver counts as
// another machine.
bool IsOnThisMachine(std::string_view target);

}  // namespace castor::client
