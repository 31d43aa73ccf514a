// What a client shows a server, and what it trusts: TLS from files in PEM, and a bearer token. Both
// are looked at again when their files change.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

// A caller's bearer token, from a file that may change. Thread-safe. Its errors never show the
// token.
class TokenSource {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What was read of the file is taken for true for so long.
  static constexpr std::chrono::milliseconds kFresh{1000};

  // The file counts if there is one, and `token` otherwise; neither: there is no token.
  TokenSource(std::string token, std::string file);

  bool empty() const { return token_.empty() && file_.empty(); }

  // The value of metadata `authorization`; "" if there is no token. FAILED_PRECONDITION, naming the
  // file, as long as none could be read. Later, a file that cannot be read leaves the last token.
  absl::StatusOr<std::string> Header(Time now = std::chrono::steady_clock::now());

 private:
  const std::string token_, file_;
  std::mutex mu_;
  std::string header_;  // guarded by mu_, as is
  Time read_{};         // when it was; zero: never
};

// What a gRPC target says of where it leads.

// Whether every address it names is on this machine: a Unix socket, localhost, a loopback address,
// 0.0.0.0 or ::, or an interface's own. A name that a resolver would have to be asked for counts as
// another machine.
bool IsOnThisMachine(std::string_view target);

}  // namespace castor::client
