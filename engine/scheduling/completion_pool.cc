#include "engine/scheduling/completion_pool.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace castor {
namespace {

// An answer of this size is large: some milliseconds until it is on its way.
constexpr int64_t kLargeBytes = int64_t{4} << 20;

// What an answer takes beside its bytes, in bytes.
constexpr int64_t kAnswerBytes = 16384;

int64_t BytesOf(const Answer& answer) {
  if (answer.job == nullptr || !answer.status.ok()) return 0;
  return static_cast<int64_t>(
      std::visit([](const auto& work) { return work.output.size(); }, answer.job->work));
}

}  // namespace

CompletionPool::CompletionPool(int threads, TenantTablePtr tenants, Counters& counters,
                               Outstanding& outstanding)
    : thread_count_(threads),
      counters_(counters),
      outstanding_(outstanding),
      queue_(std::move(tenants)) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {
    Stop();
    throw;
  }
}

CompletionPool::~CompletionPool() { Stop(); }

void CompletionPool::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void CompletionPool::Post(std::vector<Answer> answers) noexcept {
  if (answers.empty()) return;
  int wake;
  {
    MutexLock lock(mu_);
    for (Answer& answer : answers) {
      const std::string tenant = answer.tenant;
      const Turn turn{++posted_, BytesOf(answer)};
      queue_.Insert(tenant, turn, std::move(answer));
    }
    wake = std::min(static_cast<int>(answers.size()), idle_);
  }
  for (int i = 0; i < wake; ++i) work_.NotifyOne();
}

bool CompletionPool::TakeNext(Turn* turn, Answer* answer) {
  const bool no_large_ones = large_at_hand_ >= std::max(1, thread_count_ - 1);
  const auto* const next = queue_.First([no_large_ones](const Turn& turn, const Answer&) {
    return !no_large_ones || turn.bytes < kLargeBytes;
  });
  if (next == nullptr) return false;
  *turn = next->first;
  const std::string tenant = next->second.tenant;
  queue_.Begin(tenant);
  queue_.Charge(tenant, static_cast<double>(turn->bytes + kAnswerBytes));
  *answer = queue_.Remove(tenant, *turn);
  return true;
}

void CompletionPool::Run() noexcept {
  Turn turn;  // of the answer delivered last
  while (true) {
    Answer answer;
    {
      MutexLock lock(mu_);
      if (turn.bytes >= kLargeBytes) --large_at_hand_;
      while (!TakeNext(&turn, &answer)) {
        if (stopped_ && queue_.empty()) {
          work_.NotifyAll();  // whoever waited for a large one to be done
          return;
        }
        ++idle_;
        work_.Wait(mu_);
        --idle_;
      }
      if (turn.bytes >= kLargeBytes) ++large_at_hand_;
    }
    // Counted before delivery, so that a caller that has its answer also sees it counted.
    if (!answer.status.ok()) counters_.Refused(answer.status);
    Deliver(std::move(answer));
    outstanding_.Done();
  }
}

}  // namespace castor
