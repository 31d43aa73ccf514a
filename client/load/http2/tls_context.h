// What all of a side's connections share of TLS: certificates, keys and authorities.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/tls.h"

namespace castor::load {

using SslContext = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

// The client's side, from files that may change. Not thread-safe.
class TlsClientContext {
 public:
  explicit TlsClientContext(client::TlsOptions options);

  // Reads the files if they have changed. An error, naming the file, as long as they were never
  // good; later, files that are not good leave what was read last.
  absl::Status Refresh();

  // For a new connection. REQUIRES: Refresh() was OK once.
  SSL_CTX* get() const { return context_.get(); }
  const std::string& server_name() const { return options_.server_name; }

 private:
  // What tells one content of a file from another, without reading it.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = -1, modified_ns = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;
  static Stamp StampOf(const std::string& path);
  Stamps StampsNow() const;

  const client::TlsOptions options_;
  SslContext context_;
  Stamps stamps_{};
};

// The server's side, for tests and for a calibration's echo: without a certificate yet, and with
// one from files.
SslContext NewServerContext();

struct TlsServerOptions {
  std::string certificate_file{}, key_file{};
  std::string client_ca_file{};  // who vouches for clients; empty: they need no certificate
  bool no_tls13 = false;
};

// Throws std::runtime_error when the files cannot be used.
SslContext MakeServerContext(const TlsServerOptions& options);

}  // namespace castor::load
