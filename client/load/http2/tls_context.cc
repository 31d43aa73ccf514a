#include "client/load/http2/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "client/load/http2/tls_session.h"

namespace castor::load {
namespace {

constexpr unsigned char kAlpn[] = {2, 'h', '2'};

SslContext NewContext(const SSL_METHOD* method) {
  SslContext context(SSL_CTX_new(method), SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Connections stay for a run: there is nothing to resume.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  return context;
}

bool UseIdentity(SSL_CTX* context, const std::string& certificate, const std::string& key) {
  return SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) == 1 &&
         SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1 &&
         SSL_CTX_check_private_key(context) == 1;
}

}  // namespace

TlsClientContext::TlsClientContext(client::TlsOptions options)
    : options_(std::move(options)), context_(nullptr, SSL_CTX_free) {}

TlsClientContext::Stamp TlsClientContext::StampOf(const std::string& path) {
  struct stat file {};
  if (path.empty() || stat(path.c_str(), &file) != 0) return {};
  const auto nanoseconds = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .size = file.st_size,
          .modified_ns = nanoseconds(file.st_mtim),
          .changed_ns = nanoseconds(file.st_ctim)};
}

TlsClientContext::Stamps TlsClientContext::StampsNow() const {
  return {StampOf(client::AuthoritiesOf(options_)), StampOf(options_.certificate_file),
          StampOf(options_.key_file)};
}

absl::Status TlsClientContext::Refresh() {
  // Before reading: what changes meanwhile is read the next time.
  const Stamps stamps = StampsNow();
  if (context_ != nullptr && stamps == stamps_) return absl::OkStatus();
  const absl::Status checked = client::CheckTlsFiles(options_);
  if (!checked.ok()) return context_ != nullptr ? absl::OkStatus() : checked;

  const absl::Cleanup forget = [] { ERR_clear_error(); };
  SslContext made = NewContext(TLS_client_method());
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(made.get(), kAlpn, sizeof(kAlpn));
  TlsSession::NoteMissingCertificate(made.get());
  const std::string authorities = client::AuthoritiesOf(options_);
  const bool trusts = authorities.empty()
                          ? SSL_CTX_set_default_verify_paths(made.get()) == 1
                          : SSL_CTX_load_verify_file(made.get(), authorities.c_str()) == 1;
  const bool identified = options_.certificate_file.empty() ||
                          UseIdentity(made.get(), options_.certificate_file, options_.key_file);
  if (!trusts || !identified) {  // they changed since they were checked
    if (context_ != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError("the certificates' files cannot be read");
  }
  context_ = std::move(made);
  stamps_ = stamps;
  return absl::OkStatus();
}

SslContext NewServerContext() {
  SslContext context = NewContext(TLS_server_method());
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_alpn_select_cb(
      context.get(),
      [](SSL*, const unsigned char** out, unsigned char* size, const unsigned char* offered,
         unsigned offered_size, void*) {
        const int found = SSL_select_next_proto(const_cast<unsigned char**>(out), size, kAlpn,
                                                sizeof(kAlpn), offered, offered_size);
        return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
      },
      nullptr);
  return context;
}

SslContext MakeServerContext(const TlsServerOptions& options) {
  const absl::Cleanup forget = [] { ERR_clear_error(); };
  SslContext context = NewServerContext();
  if (options.no_tls13) SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  bool good = UseIdentity(context.get(), options.certificate_file, options.key_file);
  if (good && !options.client_ca_file.empty()) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    good = SSL_CTX_load_verify_file(context.get(), options.client_ca_file.c_str()) == 1;
  }
  if (!good) throw std::runtime_error("cannot use the certificate " + options.certificate_file);
  return context;
}

}  // namespace castor::load
