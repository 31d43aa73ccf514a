// Certificates that change on disk while a server runs: what it serves, what it refuses, and what
// it says of it.

#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "engine/base/mutex.h"
#include "tests/integration/access/secure_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

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

// Certificates, tokens and connections are renewed under load, and no call fails. tests/rotation/
// does the same for as long as one likes, with processes.

// Calls one after another, on a connection of its own.
class Caller {
 public:
  explicit Caller(const client::ClientOptions& options)
      : client_(options), thread_([this] { Run(); }) {}
  ~Caller() { Stop(); }

  void Stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Whether a call that began after `time` has been answered.
  bool HasCalledSince(steady_clock::time_point time) const {
    return last_began_.load() > time.time_since_epoch().count();
  }
  int answered() const { return answered_; }
  std::vector<std::string> failures() const {
    MutexLock lock(mu_);
    return failures_;
  }

 private:
  void Run() {
    const v1::AttendRequest request = AttendOf(4);
    while (!stopped_) {
      const auto began = steady_clock::now().time_since_epoch().count();
      const auto response = client_.Attend(request);
      if (response.ok()) {
        ++answered_;
      } else {
        MutexLock lock(mu_);
        if (failures_.size() < 10) failures_.push_back(response.error().ToString());
      }
      last_began_ = began;
    }
  }

  client::Client client_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> answered_ = 0;
  std::atomic<int64_t> last_began_ = 0;
  mutable Mutex mu_;
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses everything above
};

class ServerRenewalTest : public SecureServerTest {
 protected:
  void RotateCertificate(double times) {
    const KeyPair next = authority_.IssueForLocalhost();
    ReplaceText(folder_ / "server.key", next.key);
    ReplaceText(folder_ / "server.pem", next.certificate);
    ASSERT_TRUE(AwaitReloads("certificates", "taken", times));
  }
  void TakeCallers(const std::string& callers, double times) {
    ReplaceCallers(callers);
    ASSERT_TRUE(AwaitReloads("callers", "taken", times));
  }
  client::ClientOptions ClientOf(const std::string& token_file) {
    const KeyPair identity = authority_.Issue({.dns = {"beaver.example"}});
    client::ClientOptions options;
    options.target = address();
    options.deadline = Patience(seconds(60));
    // A client that has no second to connect in, as on a machine that stalls, tries again.
    options.retry.max_attempts = 100;
    options.tls = client::TlsOptions{
        .ca_file = WriteText(folder_ / "ca.pem", authority_.certificate()),
        .certificate_file = WriteText(folder_ / "client.pem", identity.certificate),
        .key_file = WriteText(folder_ / "client.key", identity.key)};
    options.token_file = token_file;
    return options;
  }
};

TEST_F(ServerRenewalTest, NoCallFailsWhileEverythingIsRenewed) {
  constexpr int kCallers = 3;
  const std::string old = CallerEntry("beaver", "castor_old");
  const std::string young = CallerEntry("beaver", "castor_young");
  server::ServerOptions options = WithCallers(old, WithMutualTls());
  options.max_connection_age = milliseconds(300);
  options.access.check_interval = milliseconds(100);  // the processor is for calls
  StartSecure(options);
  const std::string token_file = WriteText(folder_ / "token", "castor_old");
  const client::ClientOptions how = ClientOf(token_file);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kCallers; ++i) callers.push_back(std::make_unique<Caller>(how));
  const auto await_calls_since = [&](steady_clock::time_point time) {
    return Await([&] {
      for (const auto& caller : callers) {
        if (!caller->HasCalledSince(time)) return false;
      }
      return true;
    });
  };
  ASSERT_TRUE(await_calls_since(steady_clock::now()));
  RotateCertificate(1);
  TakeCallers(old + young, 1);
  ReplaceText(token_file, "castor_young");
  // Whoever begins a call now has the new token, whenever it looked before.
  const auto everybody_knows = steady_clock::now() + client::TokenSource::kFresh;
  for (int times = 2; times <= 5; ++times) {
    RotateCertificate(times);
    ASSERT_TRUE(await_calls_since(steady_clock::now()));
  }
  ASSERT_TRUE(await_calls_since(everybody_knows));
  TakeCallers(young, 2);
  ASSERT_TRUE(await_calls_since(steady_clock::now()));
  int answered = 0;
  for (const auto& caller : callers) {
    caller->Stop();
    answered += caller->answered();
    EXPECT_TRUE(caller->failures().empty()) << caller->failures().front();
  }
  EXPECT_GE(answered, 6 * kCallers);  // each was waited for
  EXPECT_EQ(Metric("castor_callers_refused_total{reason=\"unknown_token\"}"), 0);
  // Nothing was sent twice, either: what a retry could have hidden.
  EXPECT_EQ(Metric("castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"attend\"}"),
            answered);
  // The old token is gone.
  EXPECT_EQ(Outcome(Attend(Dial({.identity = authority_.Issue({.common_name = "x"})}),
                           "Bearer castor_old")),
            "UNAUTHENTICATED UNAUTHENTICATED");
}

}  // namespace
}  // namespace castor::testing
