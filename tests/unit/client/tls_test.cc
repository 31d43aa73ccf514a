#include "tests/support/tls_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "client/credentials.h"

namespace castor::client {
namespace {

using castor::testing::KeyPair;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Encrypted(const std::string& key) {
  BIO* const in = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  BIO* const out = BIO_new(BIO_s_mem());
  EVP_PKEY* const read = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  char password[] = "password";
  PEM_write_bio_PrivateKey(out, read, EVP_aes_128_cbc(), nullptr, 0, nullptr, password);
  char* text = nullptr;
  const long size = BIO_get_mem_data(out, &text);
  const std::string encrypted(text, static_cast<size_t>(size));
  EVP_PKEY_free(read);
  BIO_free(in);
  BIO_free(out);
  return encrypted;
}

class TlsFilesTest : public castor::testing::TlsTest {
 protected:
  // The error of options that cannot be used.
  static std::string Problem(const TlsOptions& options) {
    const absl::Status status = CheckTlsFiles(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(ERR_peek_error(), 0U) << "nothing is left for the thread's next call";
    return std::string(status.message());
  }

  const KeyPair one_ = authority_.IssueForLocalhost(), two_ = authority_.IssueForLocalhost();
};

TEST_F(TlsFilesTest, GoodFilesAreGood) {
  EXPECT_TRUE(CheckTlsFiles({}).ok()) << "the system's authorities";
  const std::string ca = File("ca", "a comment\n" + authority_.certificate());
  EXPECT_TRUE(CheckTlsFiles({.ca_file = ca}).ok());
  EXPECT_TRUE(CheckTlsFiles({.ca_file = ca,
                             .certificate_file = File("cert", one_.certificate + ca),
                             .key_file = File("key", one_.key)})
                  .ok());
}

TEST_F(TlsFilesTest, ErrorsNameTheFile) {
  const std::string cert = File("cert", one_.certificate), key = File("key", one_.key);
  const std::string empty = File("empty", ""), missing = folder_ / "missing";
  EXPECT_THAT(Problem({.ca_file = missing}), AllOf(HasSubstr(missing), HasSubstr("No such file")));
  EXPECT_THAT(Problem({.ca_file = folder_.path()}), HasSubstr("directory"));
  EXPECT_THAT(Problem({.ca_file = empty}),
              AllOf(HasSubstr(empty), HasSubstr("no PEM certificate")));
  EXPECT_THAT(Problem({.ca_file = key}), AllOf(HasSubstr(key), HasSubstr("no PEM certificate")));
  EXPECT_THAT(Problem({.certificate_file = cert}), AllOf(HasSubstr(cert), HasSubstr("key")));
  EXPECT_THAT(Problem({.key_file = key}), AllOf(HasSubstr(key), HasSubstr("certificate")));
  EXPECT_THAT(Problem({.certificate_file = missing, .key_file = key}), HasSubstr(missing));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = missing}), HasSubstr(missing));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = cert}),
              HasSubstr("no PEM private key"));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = File("locked", Encrypted(one_.key))}),
              AllOf(HasSubstr("locked"), HasSubstr("encrypted")));
  const std::string other = File("other", two_.key);
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = other}),
              AllOf(HasSubstr(other), HasSubstr(cert), HasSubstr("does not belong")));
}

}  // namespace
}  // namespace castor::client
