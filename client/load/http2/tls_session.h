// TLS of one connection, by OpenSSL, without a socket: bytes are handed in and out. So many calls
// still leave in one write, and what one read brings is all taken.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct bio_method_st;  // OpenSSL's BIO_METHOD

namespace castor::load {

// Not thread-safe.
class TlsSession {
 public:
  // Appends what is to be sent to `out`, which must outlive it. The client's side begins at once;
  // the server's certificate must say `server_name`, a DNS name or an IP address.
  static std::unique_ptr<TlsSession> Client(SSL_CTX* context, const std::string& server_name,
                                            std::string& out);
  static std::unique_ptr<TlsSession> Server(SSL_CTX* context, std::string& out);
  ~TlsSession();
  // For a client's context without a certificate: failures then say that one was asked for.
  static void NoteMissingCertificate(SSL_CTX* context);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Hands in what came; Decrypt() must then be called until it returns 0.
  void Feed(const uint8_t* bytes, size_t size);
  // The next piece of what the other side says, and its size. 0: there is no more yet, or ever.
  size_t Decrypt(uint8_t* to, size_t room);

  // The other side has closed the connection.
  void Close();

  // REQUIRES: established().
  void Encrypt(std::string_view bytes);

  // Whether both sides have agreed, on HTTP/2 too.
  bool established() const { return established_; }
  bool failed() const { return !failure_.empty(); }
  // Why; and whether it will fail again as long as neither side changes.
  const std::string& failure() const { return failure_; }
  bool hopeless() const { return hopeless_; }

  // The common name in the other side's certificate; "" if it has none.
  std::string peer() const;

 private:
  static bio_method_st* Memory();
  TlsSession(SSL_CTX* context, std::string server_name, std::string& out);
  void Shake();
  void Fail(int result);

  const std::string server_name_;  // empty: this is the server's side
  std::string& out_;
  const uint8_t* in_ = nullptr;  // what is left of what was handed in
  size_t in_size_ = 0;
  SSL* ssl_ = nullptr;
  bool established_ = false, hopeless_ = false;
  bool lacks_certificate_ = false;  // the server has asked for one, and there is none
  std::string failure_;
};

}  // namespace castor::load
