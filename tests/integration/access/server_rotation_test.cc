// Certificates that change on disk while a server runs: what it serves, what it refuses, and what
// it says of it.

#include <openssl/ssl.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <string>

#include "tests/integration/access/secure_fixture.h"

namespace castor::testing {
namespace {

using std::chrono::hours;

constexpr char kCertificates[] = "certificates";

class ServerRotationTest : public SecureServerTest {
 protected:
  // The certificate that a new connection is shown, which must be let in.
  std::string Served(TlsClient::Options options) const {
    TlsClient client(server_->port(), options);
    EXPECT_EQ(client.Enter(), "");
    return client.server_certificate();
  }
  std::string Served() const { return Served(Trusting()); }

  double Expiry(const std::string& which) const {
    return Metric("castor_certificate_expiry_timestamp_seconds{certificate=\"" + which + "\"}");
  }
  // A folder as Kubernetes mounts a secret: `name` has the files, and ..data points to it.
  void MakeVersion(const std::string& name, const KeyPair& pair) {
    std::filesystem::create_directory(folder_ / name);
    WriteText(folder_ / (name + "/tls.crt"), pair.certificate);
    WriteText(folder_ / (name + "/tls.key"), pair.key);
  }
  void PointTo(const std::string& name) {
    std::filesystem::create_symlink(name, folder_ / "..data_tmp");
    std::filesystem::rename(folder_ / "..data_tmp", folder_ / "..data");
  }
};

TEST_F(ServerRotationTest, FilesThatAreReplacedOneAfterTheOtherAreTakenInAsAPair) {
  StartSecure(WithTls());
  EXPECT_EQ(Served(), pair_.certificate);
  EXPECT_EQ(Standing(kCertificates), 0);
  const KeyPair next = authority_.IssueForLocalhost();
  ReplaceText(folder_ / "server.pem", next.certificate);
  ASSERT_TRUE(AwaitReloads(kCertificates, "refused", 1));
  EXPECT_EQ(Standing(kCertificates), 1);
  EXPECT_EQ(Served(), pair_.certificate);
  ReplaceText(folder_ / "server.key", next.key);
  ASSERT_TRUE(AwaitReloads(kCertificates, "taken", 1));
  EXPECT_EQ(Standing(kCertificates), 0);
  EXPECT_EQ(Served(), next.certificate);
  EXPECT_TRUE(Attend(Dial()).ok());
}

TEST_F(ServerRotationTest, WhatIsBrokenIsRefusedOnceAndForgottenWhenItIsMended) {
  StartSecure(WithTls());
  const std::string& good = pair_.certificate;
  double refused = 0;
  for (const std::string& broken :
       {std::string(), good.substr(0, good.size() / 2), std::string("no PEM"), good + '\0',
        authority_.Issue({.common_name = "late", .begins = -hours(2), .ends = -hours(1)})
            .certificate}) {
    ReplaceText(folder_ / "server.pem", broken);
    ASSERT_TRUE(AwaitReloads(kCertificates, "refused", ++refused)) << broken;
    EXPECT_EQ(Standing(kCertificates), 1);
    EXPECT_EQ(Served(), good);
  }
  ReplaceText(folder_ / "server.pem", good);
  EXPECT_TRUE(AwaitMetric("castor_reload_refused{what=\"certificates\"}", 0));
  EXPECT_TRUE(AwaitReloads(kCertificates, "taken", 0));  // it was in use all the time
  std::filesystem::remove(folder_ / "server.key");
  EXPECT_TRUE(AwaitReloads(kCertificates, "refused", ++refused));
  EXPECT_EQ(Served(), good);
}

TEST_F(ServerRotationTest, ASecretOfKubernetesIsTakenInWhenItsLinkIsSwapped) {
  MakeVersion("..v1", pair_);
  PointTo("..v1");
  server::ServerOptions options = Watching();
  options.access.tls = {.certificate = folder_ / "tls.crt", .key = folder_ / "tls.key"};
  std::filesystem::create_symlink("..data/tls.crt", options.access.tls.certificate);
  std::filesystem::create_symlink("..data/tls.key", options.access.tls.key);
  StartSecure(options);
  EXPECT_EQ(Served(), pair_.certificate);
  for (int version = 2; version <= 4; ++version) {
    const KeyPair next = authority_.IssueForLocalhost();
    const std::string name = "..v" + std::to_string(version);
    MakeVersion(name, next);
    PointTo(name);
    ASSERT_TRUE(AwaitReloads(kCertificates, "taken", version - 1));
    std::filesystem::remove_all(folder_ / ("..v" + std::to_string(version - 1)));
    EXPECT_EQ(Served(), next.certificate);
  }
}

TEST_F(ServerRotationTest, ConnectionsLiveThroughARotation) {
  StartSecure(WithTls());
  const auto before = Dial();
  ASSERT_TRUE(Attend(before).ok());
  const KeyPair next = other_.IssueForLocalhost();  // another authority's, too
  ReplaceText(folder_ / "server.key", next.key);
  ReplaceText(folder_ / "server.pem", next.certificate);
  ASSERT_TRUE(AwaitReloads(kCertificates, "taken", 1));
  EXPECT_TRUE(Attend(before).ok());
  EXPECT_EQ(Metric("castor_connections"), 1);  // the same one
  EXPECT_FALSE(Attend(Dial()).ok());
  EXPECT_TRUE(Attend(Dial({.authority = other_.certificate()})).ok());
}

TEST_F(ServerRotationTest, TheAuthorityOfClientsChangesByWayOfBoth) {
  StartSecure(WithMutualTls());
  TlsClient::Options ours = Trusting();
  ours.identity = authority_.Issue({.common_name = "old"});
  TlsClient::Options theirs = Trusting();
  theirs.identity = other_.Issue({.common_name = "new"});
  EXPECT_EQ(Enter(ours), "");
  EXPECT_EQ(Enter(theirs), "closed");
  ReplaceText(folder_ / "clients.pem", authority_.certificate() + other_.certificate());
  ASSERT_TRUE(AwaitReloads(kCertificates, "taken", 1));
  EXPECT_EQ(Enter(ours), "");
  EXPECT_EQ(Enter(theirs), "");
  ReplaceText(folder_ / "clients.pem", other_.certificate());
  ASSERT_TRUE(AwaitReloads(kCertificates, "taken", 2));
  EXPECT_EQ(Enter(ours), "closed");
  EXPECT_EQ(Enter(theirs), "");
  // An emptied file must not let in everybody.
  WriteText(folder_ / "clients.pem", "");
  ASSERT_TRUE(AwaitReloads(kCertificates, "refused", 1));
  EXPECT_EQ(Enter(Trusting()), "closed");
  EXPECT_EQ(Enter(theirs), "");
}

// A session that TLS would resume was let in by an authority that may be gone by now.
TEST_F(ServerRotationTest, ASessionIsNotResumedPastItsAuthority) {
  StartSecure(WithMutualTls());
  TlsClient::Options mine = Trusting();
  mine.identity = authority_.Issue({.common_name = "me"});
  double taken = 0;
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    mine.oldest = mine.newest = version;
    TlsClient first(server_->port(), mine);
    ASSERT_EQ(first.Enter(), "");
    TlsClient::Options again = mine;
    again.resume = &first;
    EXPECT_EQ(Enter(again), "");
    ReplaceText(folder_ / "clients.pem", other_.certificate());
    ASSERT_TRUE(AwaitReloads(kCertificates, "taken", ++taken));
    EXPECT_EQ(Enter(again), "closed");
    ReplaceText(folder_ / "clients.pem", authority_.certificate());
    ASSERT_TRUE(AwaitReloads(kCertificates, "taken", ++taken));
  }
}

TEST_F(ServerRotationTest, MetricsSayWhenCertificatesEnd) {
  const double now = static_cast<double>(std::time(nullptr));
  pair_ = authority_.Issue({.dns = {"localhost"}, .ends = hours(10)});
  StartSecure(WithMutualTls());
  EXPECT_NEAR(Expiry("server"), now + 10 * 3600, 120);
  EXPECT_NEAR(Expiry("client_ca"), now + 24 * 3600, 120);
  const KeyPair next = authority_.Issue({.dns = {"localhost"}, .ends = hours(20)});
  ReplaceText(folder_ / "server.key", next.key);
  ReplaceText(folder_ / "server.pem", next.certificate);
  ASSERT_TRUE(AwaitReloads(kCertificates, "taken", 1));
  EXPECT_NEAR(Expiry("server"), now + 20 * 3600, 120);
}

TEST_F(ServerRotationTest, NothingIsSaidOfWhatIsNotInUse) {
  StartSecure(Watching());
  const std::string page = Scrape();
  EXPECT_EQ(page.find("castor_certificate_expiry_timestamp_seconds{"), std::string::npos);
  EXPECT_EQ(page.find("castor_reloads_total{"), std::string::npos);
}

}  // namespace
}  // namespace castor::testing
