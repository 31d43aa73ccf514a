#include "tests/support/tls_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace castor::testing {
namespace {

constexpr int kMinuteMs = 60'000;

// HTTP/2, as gRPC requires.
constexpr unsigned char kAlpn[] = {2, 'h', '2'};

// A client's first bytes: the preface, and empty settings.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

void Must(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("a TLS client cannot ") + what);
}

using OwnedBio = std::unique_ptr<BIO, void (*)(BIO*)>;

OwnedBio Memory(const std::string& text = "") {
  BIO* const bio = BIO_new(BIO_s_mem());
  if (!text.empty()) BIO_write(bio, text.data(), static_cast<int>(text.size()));
  return {bio, &BIO_free_all};
}

using OwnedX509 = std::unique_ptr<X509, void (*)(X509*)>;

OwnedX509 CertificateOf(const std::string& pem) {
  return {PEM_read_bio_X509(Memory(pem).get(), nullptr, nullptr, nullptr), &X509_free};
}

std::string TakeAll(BIO* bio) {
  std::string bytes(BIO_ctrl_pending(bio), '\0');
  if (!bytes.empty()) BIO_read(bio, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

std::string TakeReason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "an unknown error" : reason;
}

}  // namespace

TlsClient::TlsClient(int port, const Options& options)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
      ssl_(nullptr, SSL_free) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Must(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0, "connect");
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_min_proto_version(context, options.oldest);
  SSL_CTX_set_max_proto_version(context, options.newest);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (!options.authority.empty()) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), CertificateOf(options.authority).get());
  }
  if (options.identity) {
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
        PEM_read_bio_PrivateKey(Memory(options.identity->key).get(), nullptr, nullptr, nullptr),
        EVP_PKEY_free);
    Must(SSL_CTX_use_certificate(context, CertificateOf(options.identity->certificate).get()) == 1,
         "use its certificate");
    Must(SSL_CTX_use_PrivateKey(context, key.get()) == 1, "use its key");
  }
  ssl_.reset(SSL_new(context));
  SSL_set_alpn_protos(ssl_.get(), kAlpn, sizeof(kAlpn));
  SSL_set_tlsext_host_name(ssl_.get(), options.name.c_str());
  SSL_set1_host(ssl_.get(), options.name.c_str());
  if (options.resume != nullptr) {
    const std::unique_ptr<SSL_SESSION, void (*)(SSL_SESSION*)> session(
        SSL_get1_session(options.resume->ssl_.get()), SSL_SESSION_free);
    SSL_set_session(ssl_.get(), session.get());
  }
  in_ = Memory().release();
  out_ = Memory().release();
  BIO_set_mem_eof_return(in_, -1);  // no bytes: later there may be
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_connect_state(ssl_.get());
}

TlsClient::~TlsClient() { close(socket_); }

std::string TlsClient::TakeHello() {
  SSL_do_handshake(ssl_.get());
  ERR_clear_error();
  return TakeAll(out_);
}

bool TlsClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool TlsClient::Flush() { return Send(TakeAll(out_)); }

std::string TlsClient::Pump(bool reading) {
  char buffer[16 << 10];
  for (;;) {
    ERR_clear_error();
    const int result =
        reading ? SSL_read(ssl_.get(), buffer, sizeof(buffer)) : SSL_do_handshake(ssl_.get());
    const int error = SSL_get_error(ssl_.get(), result);
    const std::string reason = error == SSL_ERROR_SSL ? TakeReason() : "";
    // The server may close before it has read everything; why, it may have said before that.
    static_cast<void>(Flush());
    if (result > 0) return "";
    if (error == SSL_ERROR_SSL) return reason;
    if (error != SSL_ERROR_WANT_READ) return "closed";
    pollfd readable{socket_, POLLIN, 0};
    if (poll(&readable, 1, kMinuteMs) != 1) return "silent";
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    if (got <= 0) return "closed";
    BIO_write(in_, buffer, static_cast<int>(got));
  }
}

std::string TlsClient::Enter() {
  if (const std::string refused = Pump(/*reading=*/false); !refused.empty()) return refused;
  Write(kPreface);
  return Pump(/*reading=*/true);
}

std::string TlsClient::version() const { return SSL_get_version(ssl_.get()); }

std::string TlsClient::server_certificate() const {
  const OwnedX509 certificate(SSL_get1_peer_certificate(ssl_.get()), &X509_free);
  if (certificate == nullptr) return "";
  const OwnedBio text = Memory();
  PEM_write_bio_X509(text.get(), certificate.get());
  return TakeAll(text.get());
}

bool TlsClient::Write(std::string_view bytes) {
  return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0 && Flush();
}

bool TlsClient::AwaitClosed() {
  char buffer[16 << 10];
  pollfd readable{socket_, POLLIN, 0};
  while (poll(&readable, 1, kMinuteMs) == 1) {
    if (recv(socket_, buffer, sizeof(buffer), 0) <= 0) return true;
  }
  return false;
}

}  // namespace castor::testing
