#include "tests/support/test_authority.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <stdexcept>

namespace castor::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

void Check(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("OpenSSL cannot ") + what);
}

Key NewKey() {
  Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  Check(key != nullptr, "make a key");
  return key;
}

template <typename Write>
std::string Pem(Write&& write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> memory(BIO_new(BIO_s_mem()), BIO_free);
  Check(memory != nullptr && write(memory.get()) == 1, "write PEM");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

std::string PemOf(X509* certificate) {
  return Pem([&](BIO* to) { return PEM_write_bio_X509(to, certificate); });
}

void Extend(X509* certificate, X509* issuer, int extension, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> made(
      X509V3_EXT_conf_nid(nullptr, &context, extension, value.c_str()), X509_EXTENSION_free);
  Check(made != nullptr && X509_add_ext(certificate, made.get(), -1) == 1, "add an extension");
}

// All but the extensions and the signature.
Certificate Draft(const Subject& subject, EVP_PKEY* key) {
  Certificate certificate(X509_new(), X509_free);
  Check(certificate != nullptr, "make a certificate");
  uint64_t serial = 0;
  Check(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "draw");
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), subject.begins.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), subject.ends.count());
  Check(X509_set_pubkey(certificate.get(), key) == 1, "set a key");
  if (!subject.common_name.empty()) {
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(subject.common_name.c_str()),
                               -1, -1, 0);
  }
  return certificate;
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name)
    : key_(NewKey()), certificate_(Draft({.common_name = name}, key_.get())) {
  X509* const own = certificate_.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  Extend(own, own, NID_basic_constraints, "critical,CA:TRUE");
  Extend(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  Extend(own, own, NID_subject_key_identifier, "hash");
  Check(X509_sign(own, key_.get(), EVP_sha256()) > 0, "sign");
  pem_ = PemOf(own);
}

TestAuthority::~TestAuthority() = default;

KeyPair TestAuthority::Issue(const Subject& subject) const {
  const Key key = NewKey();
  const Certificate certificate = Draft(subject, key.get());
  X509* const issuer = certificate_.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  std::string names;
  const auto add = [&](const char* type, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      names.append(names.empty() ? "" : ",").append(type).append(value);
    }
  };
  add("DNS:", subject.dns);
  add("URI:", subject.uris);
  add("IP:", subject.ips);
  if (!names.empty()) Extend(certificate.get(), issuer, NID_subject_alt_name, names);
  Extend(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  Extend(certificate.get(), issuer, NID_authority_key_identifier, "keyid");
  Check(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0, "sign");
  return {PemOf(certificate.get()), Pem([&](BIO* to) {
            return PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

KeyPair TestAuthority::IssueForLocalhost() const {
  return Issue({.common_name = "castor", .dns = {"localhost"}, .ips = {"127.0.0.1", "::1"}});
}

}  // namespace castor::testing
