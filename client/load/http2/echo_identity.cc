#include "client/load/http2/echo_identity.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>

namespace castor::load {
namespace {

constexpr long kLifetime = 24 * 3600;  // seconds

using OwnKey = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using OwnCertificate = std::unique_ptr<X509, void (*)(X509*)>;

// Self-signed, for localhost.
OwnCertificate Sign(EVP_PKEY* key) {
  OwnCertificate made(X509_new(), X509_free);
  X509* const it = made.get();
  ASN1_INTEGER_set(X509_get_serialNumber(it), 1);
  X509_gmtime_adj(X509_getm_notBefore(it), -3600);
  X509_gmtime_adj(X509_getm_notAfter(it), kLifetime);
  X509_NAME* const name = X509_get_subject_name(it);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("castor-load"), -1, -1, 0);
  X509_set_issuer_name(it, name);
  X509_set_version(it, X509_VERSION_3);
  X509_set_pubkey(it, key);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
  X509_add_ext(it, names, -1);
  X509_EXTENSION_free(names);
  if (X509_sign(it, key, EVP_sha256()) == 0) made.reset();
  return made;
}

}  // namespace

EchoIdentity::EchoIdentity() : context_(NewServerContext()) {
  const OwnKey key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const OwnCertificate certificate =
      key == nullptr ? OwnCertificate(nullptr, X509_free) : Sign(key.get());
  file_ = memfd_create("castor-load-echo", MFD_CLOEXEC);
  const std::unique_ptr<BIO, int (*)(BIO*)> pem(BIO_new_fd(file_, BIO_NOCLOSE), BIO_free);
  if (certificate == nullptr || file_ < 0 ||
      PEM_write_bio_X509(pem.get(), certificate.get()) != 1 ||
      SSL_CTX_use_certificate(context_.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    if (file_ >= 0) close(file_);
    throw std::runtime_error("cannot make a certificate for the echo of a calibration");
  }
  ca_file_ = "/proc/self/fd/" + std::to_string(file_);
}

EchoIdentity::~EchoIdentity() { close(file_); }

}  // namespace castor::load
