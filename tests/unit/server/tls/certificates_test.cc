#include "server/tls/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/test_authority.h"

namespace castor::server {
namespace {

using castor::testing::KeyPair;
using castor::testing::TestAuthority;
using std::chrono::hours;
using ::testing::HasSubstr;

class CertificatesTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& certificate, const std::string& key,
                      const std::string& client_ca = "") const {
    return std::string(ParseCertificates(certificate, key, client_ca, now_).status().message());
  }

  const WallTime now_ = std::chrono::system_clock::now();
  const TestAuthority authority_;
  const KeyPair pair_ = authority_.IssueForLocalhost();
};

TEST_F(CertificatesTest, KeyAndCertificateMustBelongTogether) {
  const KeyPair other = authority_.IssueForLocalhost();
  EXPECT_EQ(Refusal(pair_.certificate, other.key), "--tls-key is not the key of --tls-certificate");
}

TEST_F(CertificatesTest, WhatIsNoPemIsNamedByItsFlag) {
  EXPECT_THAT(Refusal("", pair_.key), HasSubstr("--tls-certificate has no PEM certificate"));
  EXPECT_THAT(Refusal(pair_.key, pair_.key), HasSubstr("--tls-certificate has no PEM certificate"));
  EXPECT_THAT(Refusal(pair_.certificate, pair_.certificate),
              HasSubstr("--tls-key has no PEM private"));
  EXPECT_THAT(Refusal(pair_.certificate, pair_.key, "x"), HasSubstr("--tls-client-ca has no"));
  EXPECT_THAT(Refusal(pair_.certificate + std::string(1, '\0'), pair_.key),
              HasSubstr("not a text file"));
}

// A file that is still being written is mostly cut off.
TEST_F(CertificatesTest, EveryCutIsRefused) {
  const std::string& whole = pair_.certificate;
  for (size_t size = 0; size + 30 < whole.size(); size += 7) {
    EXPECT_NE(Refusal(whole.substr(0, size), pair_.key), "") << size;
  }
  for (size_t size = 0; size + 30 < pair_.key.size(); size += 7) {
    EXPECT_NE(Refusal(whole, pair_.key.substr(0, size)), "") << size;
  }
  const std::string chain = whole + authority_.certificate();
  EXPECT_THAT(Refusal(chain.substr(0, whole.size() + 100), pair_.key), HasSubstr("is damaged"));
}

TEST_F(CertificatesTest, OutsideOfItsTimeItIsRefused) {
  const KeyPair old = authority_.Issue({.common_name = "old", .ends = -hours(1)});
  EXPECT_THAT(Refusal(old.certificate, old.key), HasSubstr("--tls-certificate expired on "));
  const KeyPair young = authority_.Issue({.common_name = "young", .begins = hours(1)});
  EXPECT_THAT(Refusal(young.certificate, young.key), HasSubstr("is not valid before "));
  EXPECT_THAT(Refusal(pair_.certificate, pair_.key, old.certificate),
              HasSubstr("--tls-client-ca expired on "));
  // One of a bundle may have expired.
  EXPECT_EQ(Refusal(pair_.certificate, pair_.key, old.certificate + authority_.certificate()), "");
}

}  // namespace
}  // namespace castor::server
