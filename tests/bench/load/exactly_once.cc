// Many requests of all kinds, some with hardly any time, some cancelled, the last ones met by a
// drain: each is answered once, each answer is right, and nothing is left behind.

#include <array>
#include <random>

#include "tests/bench/load/accountant.h"
#include "tests/bench/load/clean_end.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

constexpr int kCalls = 10'000;
constexpr int kBeforeDrain = 200;  // of them, sent just before SIGTERM
constexpr int kInDrain = 100;      // of them, sent just after
constexpr int kOpenAtOnce = 128;
constexpr auto kPatience = std::chrono::minutes(1);

}  // namespace

void ExactlyOnce(const Settings& settings, Report& report) {
  ServerProcess server(settings.server, {"--model", "encoder=" + settings.model});
  Caller caller(server.address(), 8);
  const std::vector<KnownProblem> problems = KnownProblems(caller, 1);

  std::mt19937_64 random(1);
  Accountant accountant(caller);
  const auto send = [&](int count, int window) {
    constexpr std::array<const char*, 4> kTenants = {"", "one", "two", "three"};
    for (int i = 0; i < count; ++i) {
      accountant.WaitUntilBelow(window);
      accountant.Send(DrawCall(problems, kTenants[random() % kTenants.size()], kPatience, random));
    }
  };
  send(kCalls - kBeforeDrain - kInDrain, kOpenAtOnce);
  accountant.WaitForAll();
  report.Note("answers before the drain", TextOf(accountant.account().codes));
  CheckNothingLeftBehind(server, report);

  send(kBeforeDrain, kCalls);
  server.Terminate();
  send(kInDrain, kCalls);
  accountant.WaitForAll();
  CheckDrained(server, report);
  const Account account = accountant.account();
  report.Note("answers, the drain's included", TextOf(account.codes));
  CheckAnswers(account, report);
}

}  // namespace castor::bench
