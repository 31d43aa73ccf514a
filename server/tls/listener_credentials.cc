#include "server/tls/listener_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace castor::server {
namespace {

// gRPC's C++ interface either reads certificates once, or watches files by itself and takes what it
// finds there, half-written pairs included. Its C interface asks at each handshake instead.
class TlsListenerCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsListenerCredentials(const LiveCertificates& certificates)
      : certificates_(certificates) {
    const auto clients = certificates.current()->client_ca.empty()
                             ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                             : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, &Fetch, this));
  }
  ~TlsListenerCredentials() override { grpc_server_credentials_release(credentials_); }

  // Callers are looked at by the Authorizer, which also serves plaintext listeners.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls it at the beginning of each handshake, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& own = *static_cast<TlsListenerCredentials*>(self);
    std::shared_ptr<const Certificates> now = own.certificates_.current();
    if (now == own.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    grpc_ssl_pem_key_cert_pair pair{.private_key = now->key.c_str(),
                                    .cert_chain = now->chain.c_str()};
    // gRPC asserts that there are roots, which it uses only where clients need certificates.
    const std::string& roots = now->client_ca.empty() ? now->chain : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    own.given_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const LiveCertificates& certificates_;
  grpc_server_credentials* credentials_ = nullptr;
  std::shared_ptr<const Certificates> given_;  // Fetch's
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const LiveCertificates* certificates) {
  if (certificates == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<TlsListenerCredentials>(*certificates);
}

bool RequireTls13() {
  // What OpenSSL applies to each new context; gRPC sets versions in another way, which adds to it.
  constexpr std::string_view kConfiguration =
      "openssl_conf = all\n"
      "[all]\nssl_conf = contexts\n"
      "[contexts]\nsystem_default = ours\n"
      "[ours]\nProtocol = -TLSv1.2\n";
  OPENSSL_init_ssl(0, nullptr);  // reads the system's configuration, which ours replaces
  const std::unique_ptr<BIO, int (*)(BIO*)> text(
      BIO_new_mem_buf(kConfiguration.data(), static_cast<int>(kConfiguration.size())), &BIO_free);
  const std::unique_ptr<CONF, void (*)(CONF*)> read(NCONF_new(nullptr), &NCONF_free);
  return NCONF_load_bio(read.get(), text.get(), nullptr) == 1 &&
         CONF_modules_load(read.get(), "openssl_conf", 0) == 1;
}

}  // namespace castor::server
