#include "server/tls/certificates.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace castor::server {
namespace {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;

constexpr char kCertificateFlag[] = "--tls-certificate";
constexpr char kKeyFlag[] = "--tls-key";
constexpr char kClientCaFlag[] = "--tls-client-ca";

absl::Status Bad(std::string_view flag, std::string_view problem) {
  return absl::InvalidArgumentError(std::string(flag) + " " + std::string(problem));
}

// The library's reason for its last error; it keeps a queue of them.
std::string LastError() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "unknown reason" : reason;
}

Bio Reader(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Keys with a pass phrase are refused: no one could type it.
int NoPassPhrase(char*, int, int, void*) { return -1; }

// Every certificate of the text. Other blocks, such as a key that stands in the same file, are
// skipped.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view flag,
                                                          std::string_view text) {
  std::vector<Certificate> certificates;
  const Bio bio = Reader(text);
  ERR_clear_error();
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, NoPassPhrase, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (!at_end) return Bad(flag, "is damaged: a certificate in it cannot be read");
  if (certificates.empty()) return Bad(flag, "has no PEM certificate");
  return certificates;
}

std::optional<WallTime> TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return std::nullopt;
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

std::string Text(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts)};
}

// The end of its validity; an error outside of that.
absl::StatusOr<WallTime> CheckTimes(std::string_view flag, const X509& certificate, WallTime now) {
  const auto begins = TimeOf(X509_get0_notBefore(&certificate));
  const auto ends = TimeOf(X509_get0_notAfter(&certificate));
  if (!begins || !ends) return Bad(flag, "has a certificate without validity dates");
  if (*ends <= now) return Bad(flag, "expired on " + Text(*ends));
  if (*begins > now) return Bad(flag, "is not valid before " + Text(*begins));
  return *ends;
}

// Does what gRPC will do with the pair, to learn whether it can.
absl::Status CheckPair(const std::vector<Certificate>& chain, std::string_view key_text) {
  const Bio bio = Reader(key_text);
  ERR_clear_error();
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) {
    ERR_clear_error();
    return Bad(kKeyFlag, "has no PEM private key without a passphrase");
  }
  const Context context(SSL_CTX_new(TLS_method()));
  if (context == nullptr || SSL_CTX_use_certificate(context.get(), chain.front().get()) != 1) {
    return Bad(kCertificateFlag, "cannot be used: " + LastError());
  }
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return Bad(kKeyFlag, "is not the key of --tls-certificate");
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return Bad(kKeyFlag, "cannot be used: " + LastError());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Certificates> ParseCertificates(std::string_view certificate, std::string_view key,
                                               std::string_view client_ca, WallTime now) {
  // gRPC takes texts that end at a zero, and would read others differently.
  for (const auto& [flag, text] :
       {std::pair{kCertificateFlag, certificate}, {kKeyFlag, key}, {kClientCaFlag, client_ca}}) {
    if (text.find('\0') != std::string_view::npos) return Bad(flag, "is not a text file");
  }
  auto chain = ReadCertificates(kCertificateFlag, certificate);
  if (!chain.ok()) return chain.status();
  if (absl::Status pair = CheckPair(*chain, key); !pair.ok()) return pair;
  const auto expires = CheckTimes(kCertificateFlag, *chain->front(), now);
  if (!expires.ok()) return expires.status();
  Certificates result{.chain = std::string(certificate),
                      .key = std::string(key),
                      .client_ca = std::string(client_ca),
                      .expires = *expires};
  if (client_ca.empty()) return result;
  const auto authorities = ReadCertificates(kClientCaFlag, client_ca);
  if (!authorities.ok()) return authorities.status();
  // One of several authorities may have expired: a bundle outlives its members. Not all of them.
  bool any_valid = false;
  absl::Status first;
  for (const Certificate& authority : *authorities) {
    const auto ends = CheckTimes(kClientCaFlag, *authority, now);
    first.Update(ends.status());
    if (!ends.ok()) continue;
    result.client_ca_expires = any_valid ? std::min(result.client_ca_expires, *ends) : *ends;
    any_valid = true;
  }
  if (!any_valid) return first;
  return result;
}

absl::StatusOr<std::unique_ptr<LiveCertificates>> OpenCertificates(const TlsFiles& files) {
  const bool needs_clients = !files.client_ca.empty();
  return LiveCertificates::Open(
      {files.certificate, files.key, files.client_ca},
      [needs_clients](const std::vector<std::string>& texts) -> absl::StatusOr<Certificates> {
        // An emptied file must not let in clients without a certificate.
        if (needs_clients && texts[2].empty()) return Bad(kClientCaFlag, "is empty");
        return ParseCertificates(texts[0], texts[1], texts[2], std::chrono::system_clock::now());
      });
}

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

std::optional<CertificateNames> NamesOfPeer(SSL* connection) {
  const Certificate peer(SSL_get1_peer_certificate(connection));
  if (peer == nullptr || SSL_get_verify_result(connection) != X509_V_OK) return std::nullopt;
  CertificateNames names;
  const auto text = [](const ASN1_STRING* string) {
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                       static_cast<size_t>(ASN1_STRING_length(string)));
  };
  const std::unique_ptr<GENERAL_NAMES, FreeWith<GENERAL_NAMES_free>> alternatives(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(peer.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (name->type == GEN_URI) names.uris.push_back(text(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) names.dns.push_back(text(name->d.dNSName));
  }
  X509_NAME* const subject = X509_get_subject_name(peer.get());
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    names.common_names.push_back(text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
  }
  return names;
}

bool RequireTls13() {
  // OpenSSL applies this to each new context. gRPC's own setting does not override it.
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
