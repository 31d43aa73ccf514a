#include "tests/bench/load/accountant.h"

#include <string>
#include <thread>
#include <utility>

namespace castor::bench {
namespace {

constexpr auto kStep = std::chrono::milliseconds(1);  // a cancellation is this late at most

}  // namespace

void Account::Add(const Account& more) {
  sent += more.sent;
  answered_once += more.answered_once;
  same_bytes += more.same_bytes;
  close += more.close;
  wrong += more.wrong;
  for (const auto& [name, count] : more.codes) codes[name] += count;
}

void CheckAnswers(const Account& account, Report& report) {
  report.Check("calls that were answered once", account.answered_once == account.sent,
               std::to_string(account.answered_once) + " of " + std::to_string(account.sent));
  report.Check("OK answers that are wrong", account.wrong == 0,
               std::to_string(account.wrong) + "; the same bytes as alone " +
                   std::to_string(account.same_bytes) + ", embeddings within 2e-5 " +
                   std::to_string(account.close));
}

void Accountant::Send(const MixedCall& call) {
  const KnownProblem& problem = *call.problem;
  int* times = nullptr;
  {
    MutexLock lock(mu_);
    ++open_;
    ++account_.sent;
    times = &times_answered_.emplace_back(0);
  }
  const auto now = Clock::now();
  auto started =
      caller_.Start(problem.method, problem.requests[call.priority], call.settings,
                    [this, &problem, times](Answer answer) { Take(problem, answer, *times); });
  if (call.cancel_after != Clock::duration::max()) {
    due_.push({now + call.cancel_after, std::move(started)});
  }
}

void Accountant::Take(const KnownProblem& problem, const Answer& answer, int& times) {
  const bool ok = answer.code == grpc::StatusCode::OK;
  const Match match = ok ? Compare(problem, answer.bytes) : Match::kSameBytes;
  MutexLock lock(mu_);
  ++times;
  if (times == 1) ++account_.answered_once;
  if (times == 2) --account_.answered_once;
  if (ok) {
    account_.same_bytes += match == Match::kSameBytes;
    account_.close += match == Match::kClose;
    account_.wrong += match == Match::kWrong;
  }
  Count(answer.code, answer.reason, account_.codes);
  --open_;
  changed_.NotifyOne();
}

void Accountant::WaitUntilBelow(int limit) {
  for (;; CancelDue()) {
    MutexLock lock(mu_);
    if (open_ < limit) return;
    changed_.WaitUntil(mu_, Clock::now() + kStep);
  }
}

void Accountant::WaitUntil(Clock::time_point then) {
  for (; Clock::now() < then; CancelDue()) std::this_thread::sleep_for(kStep);
}

void Accountant::WaitForAll() {
  WaitUntilBelow(1);
  due_ = {};
}

Account Accountant::account() {
  MutexLock lock(mu_);
  return account_;
}

void Accountant::CancelDue() {
  while (!due_.empty() && due_.top().when <= Clock::now()) {
    due_.top().call->Cancel();
    due_.pop();
  }
}

}  // namespace castor::bench
