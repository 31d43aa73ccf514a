#include "engine/scheduling/completion_pool.h"

#include <algorithm>
#include <utility>

namespace castor {

CompletionPool::CompletionPool(int threads, Counters& counters, Outstanding& outstanding)
    : counters_(counters), outstanding_(outstanding) {
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
    for (Answer& answer : answers) queue_.push_back(std::move(answer));
    wake = std::min(static_cast<int>(answers.size()), idle_);
  }
  for (int i = 0; i < wake; ++i) work_.NotifyOne();
}

void CompletionPool::Run() noexcept {
  while (true) {
    Answer answer;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopped_) {
        ++idle_;
        work_.Wait(mu_);
        --idle_;
      }
      if (queue_.empty()) return;
      answer = std::move(queue_.front());
      queue_.pop_front();
    }
    // Counted before delivery, so that a caller that has its answer also sees it counted.
    if (!answer.status.ok()) counters_.Refused(answer.status);
    Deliver(std::move(answer));
    outstanding_.Done();
  }
}

}  // namespace castor
