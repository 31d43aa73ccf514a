// The control of a run at its checkpoints: whether it may go on.
//
// A run of a kernel consists of stages of tasks (attention/parallel.h), and a run of an encoder of
// layers. Between two rounds of tasks, and between two layers, is a checkpoint, where the code that
// started the run may end it, or pause it while another run takes place on the same thread. The
// kernel does not know why, and its results do not depend on it.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace castor {

// The progress of the thread that owns a device: a count that rises with every piece of work. It
// lets a watcher tell a long computation from one that hangs.
//
// One thread at a time beats; any may read. The thread binds its heartbeat, and code that computes
// for it beats without knowing the owner. Waiting for a device is no progress and makes no beats.
struct Progress {
  bool busy = false;   // whether the thread has work; false while it waits for some
  uint64_t beats = 0;  // rises with each piece of work, and when `busy` changes
};

class Heartbeat {
 public:
  void Beat() noexcept { Store(Next() | (value_.load(std::memory_order_relaxed) & 1)); }
  void SetBusy(bool busy) noexcept { Store(Next() | (busy ? 1 : 0)); }

  Progress Read() const noexcept {
    const uint64_t value = value_.load(std::memory_order_relaxed);
    return {(value & 1) != 0, value >> 1};
  }

  // The heartbeat that the calling thread has bound, or nullptr.
  static Heartbeat* OfThisThread() noexcept;

 private:
  // There is only one writer, so no other store comes between a load and a store.
  uint64_t Next() const noexcept { return (Read().beats + 1) << 1; }
  void Store(uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }

  std::atomic<uint64_t> value_ = 0;  // beats and, in the lowest bit, busy
};

// Binds a heartbeat to the constructing thread, for as long as this object lives.
class BoundHeartbeat {
 public:
  explicit BoundHeartbeat(Heartbeat& heartbeat) noexcept;
  ~BoundHeartbeat();
  BoundHeartbeat(const BoundHeartbeat&) = delete;
  BoundHeartbeat& operator=(const BoundHeartbeat&) = delete;
};

// A beat of this thread's heartbeat, if it has one.
inline void BeatHere() noexcept {
  if (Heartbeat* const heartbeat = Heartbeat::OfThisThread()) heartbeat->Beat();
}

class RunControl {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr Duration kNever = Duration::max();

  // The time until a checkpoint is due; the run reaches it as soon as its steps allow. Zero: every
  // possible checkpoint is due.
  explicit RunControl(Duration interval) : interval_(interval) { Restart(); }
  virtual ~RunControl() = default;
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  // Whether the run must come to a checkpoint. Reads the clock, so call it every 100 us or so.
  // Other threads may be working on the run's tasks meanwhile.
  bool Due() {
    if (std::chrono::steady_clock::now() < next_) return false;
    Restart();
    return WantsCheckpoint();
  }

  // The run has come to the due checkpoint, and no thread works on its tasks. An error ends the
  // run, which returns that status.
  absl::Status Pause() {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = AtCheckpoint();
    paused_ += std::chrono::steady_clock::now() - begin;
    Restart();
    return status;
  }

  // A point where no thread works on the run's tasks: beats the thread's heartbeat, and comes to
  // the checkpoint if one is due.
  absl::Status Checkpoint() {
    BeatHere();
    return Due() ? Pause() : absl::OkStatus();
  }

  // How long the run has been paused in total.
  Duration paused() const { return paused_; }

 private:
  // Whether AtCheckpoint has anything to do; if not, the run need not wait for its threads. Cheap;
  // called on the engine thread, once per interval.
  virtual bool WantsCheckpoint() { return true; }
  virtual absl::Status AtCheckpoint() = 0;

  void Restart() {
    using Time = std::chrono::steady_clock;
    next_ = interval_ == kNever ? Time::time_point::max() : Time::now() + interval_;
  }

  const Duration interval_;
  std::chrono::steady_clock::time_point next_;
  Duration paused_{};
};

// The control of runs that are never interrupted. It has no state, so runs may share it.
RunControl& RunToEnd();

}  // namespace castor
