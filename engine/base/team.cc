#include "engine/base/team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

// How long a helper spins for the next round before it sleeps: longer than the time between two
// stages, short enough not to slow other processes.
constexpr std::chrono::microseconds kSpin{50};

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Team::Team(int helpers) {
  try {
    for (int thread = 1; thread <= std::min<int>(helpers, kHelpers); ++thread) {
      threads_.emplace_back([this, thread] { Help(thread); });
    }
  } catch (const std::exception&) {  // the system allows no more threads
  }
}

Team::~Team() {
  state_.fetch_or(kEnd, std::memory_order_relaxed);
  state_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::Run(int threads, const std::function<void(int)>& work) {
  if (threads <= 1 || threads_.empty()) return work(0);
  work_ = &work;
  round_threads_ = threads;
  // No helper works, so all lower bits are zero.
  const uint32_t round = state_.load(std::memory_order_relaxed) + kRound;
  state_.store(round | kOpen, std::memory_order_release);
  state_.notify_all();
  work(0);
  state_.fetch_and(~kOpen, std::memory_order_relaxed);
  // Helpers that have begun end soon, unless the system has preempted them.
  for (int looks = 0; (state_.load(std::memory_order_acquire) & kHelpers) != 0; ++looks) {
    if (looks < 1000) {
      Relax();
    } else {
      std::this_thread::yield();
    }
  }
}

bool Team::AwaitRound(uint32_t* seen) {
  constexpr int kLooksPerClock = 16;
  constexpr uint32_t kName = ~(kRound - 1);
  const auto found = [&](uint32_t state) {
    return (state & kEnd) != 0 || ((state & kOpen) != 0 && (state & kName) != (*seen & kName));
  };
  uint32_t state = state_.load(std::memory_order_acquire);
  const steady_clock::time_point until = steady_clock::now() + kSpin;
  while (!found(state) && steady_clock::now() < until) {
    for (int i = 0; i < kLooksPerClock && !found(state); ++i) {
      Relax();
      state = state_.load(std::memory_order_acquire);
    }
  }
  while (!found(state)) {
    state_.wait(state, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  *seen = state;
  return (state & kEnd) == 0;
}

void Team::Help(int thread) {
  pthread_setname_np(pthread_self(), "compute");
  for (uint32_t seen = 0; AwaitRound(&seen);) {
    // Joins the round unless it is over, or another has begun.
    uint32_t state = seen;
    bool open = true;
    while (open && !state_.compare_exchange_weak(state, state + kHelper, std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      open = (state & kOpen) != 0 && (state & ~(kRound - 1)) == (seen & ~(kRound - 1));
    }
    if (!open) continue;
    if (thread < round_threads_) (*work_)(thread);
    state_.fetch_sub(kHelper, std::memory_order_release);
  }
}

absl::Status CheckThreads(int count) {
  std::atomic<bool> enough = false;
  std::vector<std::thread> threads;
  absl::Status status;
  try {
    threads.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) threads.emplace_back([&enough] { enough.wait(false); });
  } catch (const std::exception& error) {
    status = MakeError(Reason::kInternal,
                       "cannot start " + std::to_string(count) + " threads, only " +
                           std::to_string(threads.size()) + ": " + error.what() +
                           " (limits: ulimit -u, ulimit -v, the container's processes)");
  }
  enough = true;
  enough.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace castor
