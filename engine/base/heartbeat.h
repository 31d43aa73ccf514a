// How the thread that owns a device shows progress: a count that rises with every piece of work. A
// watcher can so tell a long computation from one that hangs.
//
// One thread at a time beats; any may read. The thread binds its heartbeat, and code that computes
// for it beats without knowing the owner. Waiting for a device is no progress, so nothing beats
// then.
#pragma once

#include <atomic>
#include <cstdint>

namespace castor {

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

}  // namespace castor
