// Sends calls whose answers are known, and keeps account of every answer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>

#include "engine/base/mutex.h"
#include "tests/bench/load/caller.h"
#include "tests/bench/load/mixed_calls.h"
#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/report.h"

namespace castor::bench {

struct Account {
  int64_t sent = 0;
  int64_t answered_once = 0;
  int64_t same_bytes = 0, close = 0, wrong = 0;  // OK answers: see Match
  Codes codes{};

  void Add(const Account& more);
};

// That every call was answered once, and that no OK answer is wrong.
void CheckAnswers(const Account& account, Report& report);

// One thread at a time may use it; the account is any thread's. It must not be destroyed before
// WaitForAll.
class Accountant {
 public:
  explicit Accountant(Caller& caller) : caller_(caller) {}

  void Send(const MixedCall& call);

  // Until fewer than `limit` calls are open; until then; until none is open. Calls that are to be
  // cancelled meanwhile are.
  void WaitUntilBelow(int limit);
  void WaitUntil(Clock::time_point then);
  void WaitForAll();

  Account account();  // so far

 private:
  struct Cancellation {
    Clock::time_point when;
    std::shared_ptr<StartedCall> call;
    bool operator<(const Cancellation& other) const { return when > other.when; }  // first on top
  };

  void CancelDue();
  void Take(const KnownProblem& problem, const Answer& answer, int& times);

  Caller& caller_;
  std::priority_queue<Cancellation> due_;
  Mutex mu_;
  CondVar changed_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  Account account_ ABSL_GUARDED_BY(mu_);
  std::deque<int> times_answered_ ABSL_GUARDED_BY(mu_);  // by call; elements stay where they are
};

}  // namespace castor::bench
