// Many requests of all kinds, some with hardly any time, some cancelled, the last ones met by a
// drain: each is answered once, each answer is right, and nothing is left behind.

#include <algorithm>
#include <array>
#include <deque>
#include <queue>
#include <random>
#include <thread>

#include "engine/base/mutex.h"
#include "tests/bench/load/known_answers.h"
#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/requests.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

constexpr int kCalls = 10'000;
constexpr int kBeforeDrain = 200;  // of them, sent just before SIGTERM
constexpr int kInDrain = 100;      // of them, sent just after
constexpr int kOpenAtOnce = 128;

// Sends calls and keeps account of every answer.
class Accountant {
 public:
  Accountant(Caller& caller, const std::vector<KnownProblem>& problems)
      : caller_(caller), problems_(problems) {}

  // With at most `window` calls open; returns when `count` have been sent.
  void Send(int count, int window) {
    for (int i = 0; i < count; ++i) {
      WaitUntilBelow(window);
      SendOne();
    }
  }

  // Returns when all have been answered.
  void WaitForAll() {
    WaitUntilBelow(1);
    due_ = {};
  }

  // After WaitForAll:
  int64_t sent() const { return static_cast<int64_t>(times_answered_.size()); }
  int64_t answered_once() const {
    return std::count(times_answered_.begin(), times_answered_.end(), 1);
  }
  const Codes& codes() const { return codes_; }
  int64_t same_bytes() const { return matches_[0]; }
  int64_t close() const { return matches_[1]; }
  int64_t wrong() const { return matches_[2]; }

 private:
  struct Cancellation {
    Clock::time_point when;
    std::shared_ptr<StartedCall> call;
    bool operator<(const Cancellation& other) const { return when > other.when; }  // first on top
  };

  // Cancels what is due meanwhile.
  void WaitUntilBelow(int limit) {
    for (;; CancelDue()) {
      MutexLock lock(mu_);
      if (open_ < limit) return;
      changed_.WaitUntil(mu_, Clock::now() + std::chrono::milliseconds(1));
    }
  }

  void CancelDue() {
    while (!due_.empty() && due_.top().when <= Clock::now()) {
      due_.top().call->Cancel();
      due_.pop();
    }
  }

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  void SendOne() {
    const KnownProblem& problem = problems_[Random(0, problems_.size() - 1)];
    const auto now = Clock::now();
    CallSettings settings;
    // One in ten has hardly any time, one in ten is cancelled.
    const int64_t fate = Random(0, 9);
    settings.deadline = now + std::chrono::milliseconds(fate == 0 ? Random(1, 50) : 60'000);
    constexpr std::array<const char*, 4> kTenants = {"", "one", "two", "three"};
    settings.tenant = kTenants[Random(0, kTenants.size() - 1)];
    int* times = nullptr;
    {
      MutexLock lock(mu_);
      ++open_;
      times = &times_answered_.emplace_back(0);
    }
    auto call = caller_.Start(problem.method, problem.requests[Random(0, 2)], settings,
                              [this, &problem, times](Answer answer) {
                                const bool ok = answer.code == grpc::StatusCode::OK;
                                const Match match =
                                    ok ? Compare(problem, answer.bytes) : Match::kSameBytes;
                                MutexLock lock(mu_);
                                ++*times;
                                if (ok) ++matches_[static_cast<size_t>(match)];
                                Count(answer.code, answer.reason, codes_);
                                --open_;
                                changed_.NotifyOne();
                              });
    if (fate == 1) {
      due_.push({now + std::chrono::microseconds(Random(0, 50'000)), std::move(call)});
    }
  }

  Caller& caller_;
  const std::vector<KnownProblem>& problems_;
  std::mt19937_64 random_{1};
  std::priority_queue<Cancellation> due_;
  Mutex mu_;
  CondVar changed_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  // Written under mu_, and read when no call is open.
  std::deque<int> times_answered_;  // by call; its elements stay where they are
  std::array<int64_t, 3> matches_{};
  Codes codes_;
};

// The names and values of the gauges of what is in flight or queued that are not 0. Callers get
// their answers a little before the server has put everything away: it gets two seconds.
std::string LeftBehind(const ServerProcess& server) {
  std::string left;
  for (int attempt = 0; attempt < 40; ++attempt) {
    const MetricsPage page = server.Metrics();
    left = page.empty() ? "no metrics" : "";
    for (const auto& [name, value] : page.series()) {
      const bool gauge =
          name.starts_with("castor_inflight_") || name.starts_with("castor_queue_depth");
      if (gauge && value != 0) left += name + " " + Whole(value) + " ";
    }
    if (left.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return left;
}

}  // namespace

void ExactlyOnce(const Settings& settings, Report& report) {
  ServerProcess server(settings.server, {"--model", "encoder=" + settings.model});
  Caller caller(server.address(), 8);
  const std::vector<KnownProblem> problems = KnownProblems(caller, 1);

  Accountant accountant(caller, problems);
  accountant.Send(kCalls - kBeforeDrain - kInDrain, kOpenAtOnce);
  accountant.WaitForAll();
  report.Note("answers before the drain", TextOf(accountant.codes()));
  const std::string left = LeftBehind(server);
  report.Check("gauges of work are back at zero", left.empty(), left.empty() ? "all" : left);

  accountant.Send(kBeforeDrain, kCalls);
  server.Terminate();
  accountant.Send(kInDrain, kCalls);
  accountant.WaitForAll();
  const std::optional<int> exit_code = server.Wait(std::chrono::seconds(60));
  report.Note("answers, the drain's included", TextOf(accountant.codes()));
  report.Check(
      "calls that were answered once", accountant.answered_once() == accountant.sent(),
      std::to_string(accountant.answered_once()) + " of " + std::to_string(accountant.sent()));
  report.Check("OK answers that are wrong", accountant.wrong() == 0,
               std::to_string(accountant.wrong()) + "; the same bytes as alone " +
                   std::to_string(accountant.same_bytes()) + ", embeddings within 2e-5 " +
                   std::to_string(accountant.close()));
  report.Check("the drained server's exit code", exit_code == 0,
               exit_code.has_value() ? std::to_string(*exit_code) : "none");
}

}  // namespace castor::bench
