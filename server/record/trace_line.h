// A request as one line of a trace: when it came and how large it was, what it asked for, and
// nothing of what it held: no elements, no texts, no tenant, no id. client/load/schedule/trace.h
// describes the format, and reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"

namespace castor::server {

// What is known of a request when it comes, and once it is answered. For one thread at a time.
class TraceLine {
 public:
  // The request need not be valid: one of which the trace can say nothing leaves the line empty.
  // `at` is when it came, from the recording's begin; `left` is what was left of its deadline.
  void Begin(const AttentionRequest& request, std::chrono::nanoseconds at,
             std::chrono::nanoseconds left);
  void Begin(const EncodeRequest& request, std::chrono::nanoseconds at,
             std::chrono::nanoseconds left);

  bool empty() const { return line_.empty(); }

  // The line, with its newline. `token_counts` are those of the answer, if there is one: the sizes
  // of texts are known from then on, and are given in bytes otherwise. Call once.
  std::string Finish(const std::vector<int64_t>* token_counts);

 private:
  std::string line_;   // up to the sizes, if those are to come
  std::string bytes_;  // of texts: their sizes until there is an answer
};

// For Finish.
inline const std::vector<int64_t>* TokenCountsOf(const AttentionResult&) { return nullptr; }
inline const std::vector<int64_t>* TokenCountsOf(const EncodeResult& result) {
  return &result.token_counts;
}

}  // namespace castor::server
