// A gRPC server for tests of clients: with TLS or without, and with a token or without. It answers
// Health, GetServerInfo and Attend, and records the caller.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tests/support/test_authority.h"

namespace castor::testing {

class SecureServer {
 public:
  struct Options {
    std::optional<KeyPair> identity{};  // nullopt: plaintext
    std::string client_authority{};     // in PEM; empty: clients need no certificate
  };

  // Listens at 127.0.0.1. Throws std::runtime_error when it cannot.
  explicit SecureServer(Options options);
  ~SecureServer();
  SecureServer(const SecureServer&) = delete;
  SecureServer& operator=(const SecureServer&) = delete;

  int port() const;
  std::string target() const { return "127.0.0.1:" + std::to_string(port()); }

  // Ends all connections and listens there again, with these options.
  void Restart(Options options);

  // Calls with another token, or without one, end as UNAUTHENTICATED. Empty: all calls pass.
  void RequireToken(const std::string& token);

  // The last call's certificate's common name, and its metadata `authorization`.
  std::string caller() const;
  std::string authorization() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace castor::testing
