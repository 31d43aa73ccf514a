// Certificates, tokens and connections are renewed under load, and no call fails. tests/rotation/
// does the same for as long as one likes, with processes.

#include <atomic>
#include <chrono>
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

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

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
