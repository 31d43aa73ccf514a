// A server's certificate for this process alone, made afresh: for the echo of a calibration.
#pragma once

#include <string>

#include "client/load/http2/tls_context.h"

namespace castor::load {

class EchoIdentity {
 public:
  // Throws std::runtime_error where OpenSSL or the system fails.
  EchoIdentity();
  ~EchoIdentity();
  EchoIdentity(const EchoIdentity&) = delete;
  EchoIdentity& operator=(const EchoIdentity&) = delete;

  // For a server at localhost, or a Unix socket.
  SSL_CTX* context() const { return context_.get(); }
  // Its authority, for clients in this process. The key is in memory alone.
  const std::string& ca_file() const { return ca_file_; }

 private:
  SslContext context_;
  int file_ = -1;  // in memory
  std::string ca_file_;
};

}  // namespace castor::load
