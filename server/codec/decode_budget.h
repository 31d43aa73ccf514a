// Bounds the memory of messages while they are decoded, before the engine's budgets and quotas
// apply: an empty element takes two bytes on the wire and a hundred here. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/engine.h"

namespace castor::server {

class DecodeBudget {
 public:
  // `max_bytes`: of all messages together, in addition to the bytes that gRPC holds.
  DecodeBudget(const EngineOptions& engine, int64_t max_bytes)
      : max_sequences(engine.max_sequences),
        max_tokens(std::max(engine.max_queued_tokens, engine.max_text_bytes)),
        max_values(engine.max_queued_bytes / static_cast<int64_t>(sizeof(float))),
        max_text_bytes(engine.max_text_bytes),
        max_bytes_(max_bytes) {}

  // The most elements of each kind that the engine could admit.
  const int64_t max_sequences;
  const int64_t max_tokens;  // also for Detokenize, whose text has at least a byte for each id
  const int64_t max_values;  // of a tensor
  const int64_t max_text_bytes;

  // False, and nothing is taken, if there is no room.
  bool TakeBytes(int64_t bytes) {
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= max_bytes_) return true;
    GiveBack(bytes);
    return false;
  }
  void GiveBack(int64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  // The error for a message without room. Decoding takes milliseconds.
  static absl::Status Full() {
    return QueueFull("the memory for messages being decoded is exhausted",
                     std::chrono::milliseconds(100));
  }

  // Gives back what was taken when it is destroyed: a deleter.
  struct Return {
    Return() : bytes(0) {}
    void operator()(DecodeBudget* budget) const { budget->GiveBack(bytes); }
    int64_t bytes;
  };

 private:
  const int64_t max_bytes_;
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace castor::server
