// Pages over TLS from servers that ask for a client's certificate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "client/top/fleet.h"
#include "tests/support/tls_test.h"
#include "tests/unit/client/canned_server.h"

namespace castor::top {
namespace {

using castor::testing::KeyPair;
using ::testing::HasSubstr;

// For callers who have a certificate of `authorities`. All are files.
std::shared_ptr<SSL_CTX> Strict(const std::string& certificate, const std::string& key,
                                const std::string& authorities) {
  const std::shared_ptr<SSL_CTX> tls(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX_set_verify(tls.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  EXPECT_EQ(SSL_CTX_load_verify_file(tls.get(), authorities.c_str()), 1);
  EXPECT_EQ(SSL_CTX_use_certificate_chain_file(tls.get(), certificate.c_str()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(tls.get(), key.c_str(), SSL_FILETYPE_PEM), 1);
  return tls;
}

class MetricsTlsTest : public castor::testing::TlsTest {
 protected:
  // "" if the page comes.
  std::string Problem(const client::TlsOptions& files) const {
    client::ClientOptions options;
    options.tls = files;
    auto fleet = Fleet::Create({server_.address()}, options);
    if (!fleet.ok()) return std::string(fleet.status().message());
    (*fleet)->StartRound();
    while (!(*fleet)->IsRoundComplete()) (*fleet)->Wait(std::chrono::milliseconds(1000));
    return (*fleet)->Problem();
  }

  const KeyPair pair_ = authority_.IssueForLocalhost();
  const KeyPair me_ = authority_.Issue({.common_name = "me"});
  const KeyPair stranger_ = other_.Issue({.common_name = "me"});
  const client::CannedServer server_{
      client::Http("200 OK", "castor_ready 1\n"), /*endless=*/false,
      Strict(File("server", pair_.certificate), File("server.key", pair_.key), ca_)};
};

TEST_F(MetricsTlsTest, AClientsCertificateIsShown) {
  const std::string certificate = File("me", me_.certificate), key = File("me.key", me_.key);
  EXPECT_EQ(Problem({.ca_file = ca_, .certificate_file = certificate, .key_file = key}), "");
  EXPECT_THAT(Problem({.ca_file = ca_}), HasSubstr("see --cert and --cert-key"));
  EXPECT_THAT(Problem({.ca_file = ca_,
                       .certificate_file = File("stranger", stranger_.certificate),
                       .key_file = File("stranger.key", stranger_.key)}),
              HasSubstr(server_.address()));
  EXPECT_THAT(Problem({.ca_file = ca_, .certificate_file = certificate}), HasSubstr("key"));
  EXPECT_THAT(Problem({.ca_file = File("other", other_.certificate()),
                       .certificate_file = certificate,
                       .key_file = key}),
              HasSubstr("see --ca"));
}

}  // namespace
}  // namespace castor::top
