// What a run asks at its checkpoints: whether it may go on.
//
// A run of a kernel is stages of tasks (attention/parallel.h), one of an encoder is layers.
// Between two rounds of tasks, and between two layers, is a checkpoint, where whoever started the
// run may end it, or hold it up while another run happens on the same thread. The kernel does not
// know why, and its results do not depend on it.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace castor {

// How the thread that owns a device shows progress: a count that rises with every piece of work. A
// watcher can so tell a long computation from one that hangs.
//
// One thread at a time beats; any may read. The thread binds its heartbeat, and code that computes
// for it beats without knowing the owner. Waiting for a device is no progress, so nothing beats
// then.
struct Progress {
  bool busy = false;   // there is work at hand; false while the thread waits for some
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
  // There is one writer, so nothing comes between load and store.
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

  // How long a run goes on before a checkpoint is due, as far as its steps allow. Zero: a
  // checkpoint is due wherever there can be one.
  explicit RunControl(Duration interval) : interval_(interval) { Restart(); }
  virtual ~RunControl() = default;
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  // Whether the run must come to a checkpoint. Reads the clock, so it is to be asked every 100 us
  // or so. Other threads may be at tasks of the run meanwhile.
  bool Due() {
    if (std::chrono::steady_clock::now() < next_) return false;
    Restart();
    return WantsCheckpoint();
  }

  // The run has come to the checkpoint that was due: no thread is at a task of it. Anything but OK
  // ends the run, which returns that status.
  absl::Status Pause() {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = AtCheckpoint();
    paused_ += std::chrono::steady_clock::now() - begin;
    Restart();
    return status;
  }

  // A place where no thread is at a task of the run: a beat of the thread's heartbeat, and the
  // checkpoint if one is due.
  absl::Status Checkpoint() {
    BeatHere();
    return Due() ? Pause() : absl::OkStatus();
  }

  // How long the run has been held up, all in all.
  Duration paused() const { return paused_; }

 private:
  // Whether AtCheckpoint has anything to do: if not, nobody waits for the run's threads. Cheap;
  // called on the engine thread, once in an interval.
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

// For runs that nothing interrupts. Has no state, so runs may share it.
RunControl& RunToEnd();

}  // namespace castor
