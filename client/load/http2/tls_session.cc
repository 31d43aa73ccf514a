#include "client/load/http2/tls_session.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

namespace castor::load {
namespace {

constexpr std::string_view kHttp2 = "h2";
constexpr char kLacksCertificate[] =
    "the server asks for a client's certificate: see --cert and --cert-key";

bool IsIpAddress(const std::string& name) {
  in6_addr any{};
  return inet_pton(AF_INET, name.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

// Why a certificate was not believed.
std::string VerificationFailure(long result, const std::string& name) {
  switch (result) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "the server's certificate is not for " + name + ": see --server-name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the server's certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the server's certificate is not valid yet";
    default:
      return std::string("the server's certificate is not trusted: ") +
             X509_verify_cert_error_string(result) + "; see --ca";
  }
}

std::string ReasonOf(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
      return "the other side speaks no TLS";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return kLacksCertificate;
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
      return "the other side does not accept this side's certificate";
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
      return "the server speaks TLS, but no HTTP/2";
    default: {
      const char* const reason = ERR_reason_error_string(error);
      return std::string("TLS failed: ") + (reason == nullptr ? "no reason given" : reason);
    }
  }
}

}  // namespace

// Where OpenSSL reads and writes: memory, by way of the session.
BIO_METHOD* TlsSession::Memory() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "castor-load");
    BIO_meth_set_read_ex(made, [](BIO* bio, char* to, size_t room, size_t* got) {
      auto* const session = static_cast<TlsSession*>(BIO_get_data(bio));
      BIO_clear_retry_flags(bio);
      *got = std::min(room, session->in_size_);
      if (*got == 0) {
        BIO_set_retry_read(bio);
        return 0;
      }
      std::memcpy(to, session->in_, *got);
      session->in_ += *got;
      session->in_size_ -= *got;
      return 1;
    });
    BIO_meth_set_write_ex(made, [](BIO* bio, const char* from, size_t size, size_t* put) {
      static_cast<TlsSession*>(BIO_get_data(bio))->out_.append(from, size);
      *put = size;
      return 1;
    });
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  return method;
}

TlsSession::TlsSession(SSL_CTX* context, std::string server_name, std::string& out)
    : server_name_(std::move(server_name)), out_(out), ssl_(SSL_new(context)) {
  BIO* const memory = BIO_new(Memory());
  BIO_set_data(memory, this);
  BIO_set_init(memory, 1);
  SSL_set_bio(ssl_, memory, memory);  // which owns it
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

std::unique_ptr<TlsSession> TlsSession::Client(SSL_CTX* context, const std::string& server_name,
                                               std::string& out) {
  std::unique_ptr<TlsSession> session(new TlsSession(context, server_name, out));
  SSL* const ssl = session->ssl_;
  if (IsIpAddress(server_name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), server_name.c_str());
  } else {
    SSL_set1_host(ssl, server_name.c_str());
    SSL_set_tlsext_host_name(ssl, server_name.c_str());
  }
  SSL_set_app_data(ssl, session.get());
  SSL_set_connect_state(ssl);
  session->Shake();
  return session;
}

std::unique_ptr<TlsSession> TlsSession::Server(SSL_CTX* context, std::string& out) {
  std::unique_ptr<TlsSession> session(new TlsSession(context, "", out));
  SSL_set_accept_state(session->ssl_);
  return session;
}

void TlsSession::Shake() {
  ERR_clear_error();
  if (const int result = SSL_do_handshake(ssl_); result != 1) return Fail(result);
  const unsigned char* protocol = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &size);
  established_ = std::string_view(reinterpret_cast<const char*>(protocol), size) == kHttp2;
  if (established_) return;
  failure_ = "the other side speaks TLS, but no HTTP/2";
  hopeless_ = true;
}

void TlsSession::Fail(int result) {
  const int error = SSL_get_error(ssl_, result);
  if (error == SSL_ERROR_WANT_READ || failed()) return;
  if (error == SSL_ERROR_ZERO_RETURN) {
    failure_ = "the other side ended TLS";
    return;
  }
  hopeless_ = true;
  const long verified = SSL_get_verify_result(ssl_);
  if (!server_name_.empty() && verified != X509_V_OK) {
    failure_ = VerificationFailure(verified, server_name_);
  } else {
    failure_ = lacks_certificate_ ? kLacksCertificate : ReasonOf(ERR_get_error());
  }
  ERR_clear_error();
}

// Some servers, gRPC's among them, close without an alert.
void TlsSession::Close() {
  if (failed()) return;
  hopeless_ = lacks_certificate_;
  failure_ = lacks_certificate_ ? kLacksCertificate
                                : "the server closed the connection during the TLS handshake";
}

void TlsSession::NoteMissingCertificate(SSL_CTX* context) {
  SSL_CTX_set_client_cert_cb(context, [](SSL* ssl, X509**, EVP_PKEY**) {
    static_cast<TlsSession*>(SSL_get_app_data(ssl))->lacks_certificate_ = true;
    return 0;
  });
}

void TlsSession::Feed(const uint8_t* bytes, size_t size) {
  in_ = bytes;
  in_size_ = size;
}

size_t TlsSession::Decrypt(uint8_t* to, size_t room) {
  if (!established_ && !failed()) Shake();
  if (!established_ || failed()) return 0;
  ERR_clear_error();
  const int got = SSL_read(ssl_, to, static_cast<int>(std::min<size_t>(room, INT_MAX)));
  if (got > 0) {
    lacks_certificate_ = false;  // it does without
    return static_cast<size_t>(got);
  }
  Fail(got);
  return 0;
}

void TlsSession::Encrypt(std::string_view bytes) {
  if (bytes.empty() || failed()) return;
  ERR_clear_error();
  size_t put = 0;
  if (SSL_write_ex(ssl_, bytes.data(), bytes.size(), &put) != 1) Fail(0);
}

std::string TlsSession::peer() const {
  const X509* const certificate = SSL_get0_peer_certificate(ssl_);
  char name[256] = "";
  if (certificate != nullptr) {
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof(name));
  }
  return name;
}

}  // namespace castor::load
