// A server over a FakeEngine that speaks TLS or knows its callers, the files that it watches, and
// clients of it.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/integration/server_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_authority.h"
#include "tests/support/tls_client.h"

namespace castor::testing {

// Writes the file in place; returns its path.
std::string WriteText(const std::string& path, const std::string& text);
// Puts a file in the place of another at once, by a rename.
void ReplaceText(const std::string& path, const std::string& text);

// A caller's entry, with more lines such as "expires = ..."; without them it may call every method
// for ever.
std::string CallerEntry(const std::string& name, const std::string& token,
                        const std::string& more = "");
std::string CertificateEntry(const std::string& name, const std::string& san,
                             const std::string& more = "");
// The file of callers with these entries.
std::string CallersFile(const std::string& entries);

class SecureServerTest : public ServerTest {
 protected:
  // With a metrics port, and files that are looked at a hundred times a second.
  static server::ServerOptions Watching();
  // Over TLS as localhost; its pair is at "server.pem" and "server.key" of folder_.
  server::ServerOptions WithTls();
  // The same, and clients need certificates of authority_.
  server::ServerOptions WithMutualTls();
  // With a file of these callers, over plaintext unless the options have TLS.
  server::ServerOptions WithCallers(const std::string& callers);
  server::ServerOptions WithCallers(const std::string& callers, server::ServerOptions options);

  // Puts a file of these callers in its place.
  void ReplaceCallers(const std::string& callers) {
    ReplaceText(folder_ / "callers.toml", CallersFile(callers));
  }

  // Starts it as main does: with the authorizer that the options ask for.
  void StartSecure(server::ServerOptions options);

  // What a client brings.
  struct Papers {
    std::string authority = {};  // whom it trusts; empty: authority_
    std::optional<KeyPair> identity = {};
    std::string name = "localhost";  // that it expects
  };
  // A channel with its own connection, over TLS if the server speaks it.
  std::shared_ptr<grpc::Channel> Dial() const { return Dial(Papers()); }
  std::shared_ptr<grpc::Channel> Dial(const Papers& papers) const;

  // One Attend, with this as metadata `authorization` unless it is empty.
  static grpc::Status Attend(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& authorization = "");

  // Has OpenSSL shake hands; returns as TlsClient::Enter does.
  std::string Enter(TlsClient::Options options) const;
  TlsClient::Options Trusting() const { return {.authority = authority_.certificate()}; }

  double Refused(const std::string& cause) const {
    return Metric("castor_connections_refused_total{cause=\"" + cause + "\"}");
  }
  // `what` is "certificates" or "callers", `result` "taken" or "refused".
  bool AwaitReloads(const std::string& what, const std::string& result, double count) const;
  double Standing(const std::string& what) const {
    return Metric("castor_reload_refused{what=\"" + what + "\"}");
  }

  // Of this process, which the server is a part of.
  static int OpenDescriptors();

  const TestAuthority authority_;
  const TestAuthority other_{"another authority"};
  const TemporaryFolder folder_;
  KeyPair pair_ = authority_.IssueForLocalhost();  // the server's

 private:
  bool secure_ = false;  // it speaks TLS
};

}  // namespace castor::testing
