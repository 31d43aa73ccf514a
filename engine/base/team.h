// Threads that help one thread with its work.
//
// Helpers come if they can: the owner waits for those that have begun, never for one that the
// system has not let run yet. On a machine whose cores are all taken, say by a server's other
// threads, a barrier for everybody would cost a time slice each time.
//
// Between two calls helpers spin for a while, so that the stages of one computation find them
// awake, and then sleep.
//
// The thread that calls Run is the owner: one at a time, and not from inside the work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace castor {

class Team {
 public:
  // Starts up to `helpers` threads: fewer where the system gives no more.
  explicit Team(int helpers);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int helpers() const { return static_cast<int>(threads_.size()); }

  // Calls work(0) on this thread and, on helpers that come before it returns, work(1) to
  // work(threads - 1), each at most once. Returns when all calls have. So work(0) must be able to
  // do everything alone, and must not throw.
  void Run(int threads, const std::function<void(int thread)>& work);

 private:
  void Help(int thread);
  // Waits until the round that `*seen` names is over and another is open, which it becomes. False
  // at the end of the team.
  bool AwaitRound(uint32_t* seen);

  // The lowest bits count the helpers at work, the next is set while a round is open, the next at
  // the team's end, and the others name the round.
  static constexpr uint32_t kHelper = 1;
  static constexpr uint32_t kHelpers = (1U << 10) - 1;
  static constexpr uint32_t kOpen = 1U << 10;
  static constexpr uint32_t kEnd = 1U << 11;
  static constexpr uint32_t kRound = 1U << 12;

  std::atomic<uint32_t> state_ = 0;

  // Of the open round. The owner writes them while no round is open and no helper at work.
  const std::function<void(int)>* work_ = nullptr;
  int round_threads_ = 0;

  std::vector<std::thread> threads_;
};

// Whether the system lets this process have the threads that it is about to start.

// INTERNAL, with the cause, unless `count` more threads can run at the same time now. It starts
// them and lets them end. For libraries that hang or exit if they cannot start a thread.
absl::Status CheckThreads(int count);

}  // namespace castor
