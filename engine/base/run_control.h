// What a run asks at its checkpoints: whether it may go on.
//
// A run of a kernel is stages of tasks (attention/parallel.h), one of an encoder is layers.
// Between two rounds of tasks, and between two layers, is a checkpoint, where whoever started the
// run may end it, or hold it up while another run happens on the same thread. The kernel does not
// know why, and its results do not depend on it.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "engine/base/heartbeat.h"

namespace castor {

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
