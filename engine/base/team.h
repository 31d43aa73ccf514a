// Threads that help one thread with its work.
//
// The owner waits only for helpers that have begun, never for one that the system has not yet
// scheduled. On a machine whose cores are all busy, for example with a server's other threads, a
// barrier for all helpers would cost a time slice each time.
//
// Between two calls helpers spin for a while, so that the stages of one computation find them
// awake, and then sleep.
//
// The thread that calls Run is the owner. One thread at a time may call it, and not from `work`.
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
  // Starts up to `helpers` threads, or fewer if the system allows no more.
  explicit Team(int helpers);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int helpers() const { return static_cast<int>(threads_.size()); }

  // Calls work(0) on this thread and, on helpers that arrive before it returns, work(1) to
  // work(threads - 1), each at most once. Returns when all of these calls have returned. So work(0)
  // must be able to do all work alone, and must not throw.
  void Run(int threads, const std::function<void(int thread)>& work);

 private:
  void Help(int thread);
  // Waits until the round that `*seen` names is over and another is open, and stores that one in
  // `*seen`. False at the end of the team.
  bool AwaitRound(uint32_t* seen);

  // The lowest bits of `state_` count the working helpers, the next is set while a round is open,
  // the next at the team's end, and the others number the round.
  static constexpr uint32_t kHelper = 1;
  static constexpr uint32_t kHelpers = (1U << 10) - 1;
  static constexpr uint32_t kOpen = 1U << 10;
  static constexpr uint32_t kEnd = 1U << 11;
  static constexpr uint32_t kRound = 1U << 12;

  std::atomic<uint32_t> state_ = 0;

  // The open round. The owner writes these while no round is open and no helper works.
  const std::function<void(int)>* work_ = nullptr;
  int round_threads_ = 0;

  std::vector<std::thread> threads_;
};

// INTERNAL, with the cause, unless `count` more threads can run at the same time now: starts them
// and lets them end. For libraries that hang or exit if they cannot start a thread.
absl::Status CheckThreads(int count);

}  // namespace castor
