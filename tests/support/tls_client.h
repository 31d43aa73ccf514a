// A TLS client by OpenSSL alone, on a plain socket: says why it was not let in, can choose versions
// and send its hello in pieces. Not thread-safe.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/test_authority.h"

namespace castor::testing {

class TlsClient {
 public:
  struct Options {
    std::string authority = {};      // in PEM; who may sign the server's certificate
    std::string name = "localhost";  // that the server's certificate must have
    std::optional<KeyPair> identity = {};
    int oldest = 0, newest = 0;         // TLS1_2_VERSION and the like; 0: what OpenSSL has
    const TlsClient* resume = nullptr;  // whose session to offer
  };

  // Connects to this machine. Throws std::runtime_error where that or OpenSSL fails.
  TlsClient(int port, const Options& options);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // The hello's bytes, for Send; Enter sends them if nobody has taken them.
  std::string TakeHello();

  // Sends bytes as they are. False when the server has closed the connection.
  bool Send(std::string_view bytes);

  // Shakes hands for HTTP/2 and waits until the server speaks, which it does once it has let a
  // client in: "". Otherwise OpenSSL's reason, such as "tlsv1 alert unknown ca", or "closed", or
  // "silent" after a minute.
  std::string Enter();

  // Of Enter: "TLSv1.3", and the server's certificate in PEM.
  std::string version() const;
  std::string server_certificate() const;

  // Encrypts and sends. The connection must have been entered.
  bool Write(std::string_view bytes);

  // Waits for the server's next bytes; whether there are any.
  bool Read() { return Pump(/*reading=*/true).empty(); }

  // Waits until the server closes, dropping what it sends; false after a minute of silence.
  bool AwaitClosed();

 private:
  // Sends what OpenSSL wants sent.
  bool Flush();
  // Shakes hands, or reads, until that is done. Returns as Enter does.
  std::string Pump(bool reading);

  int socket_ = -1;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  BIO* in_ = nullptr;   // ssl_'s
  BIO* out_ = nullptr;  // ssl_'s
};

}  // namespace castor::testing
