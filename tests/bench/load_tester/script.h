// What a scripted server does with each request: known in advance, so that what a client should
// have measured can be computed (truth.py has the same rules).
#pragma once

#include <cstdint>

namespace castor::bench {

struct ScriptOptions {
  enum class Service {
    kParallel,  // every request is answered `service_ns` after it came, however many there are
    kQueue,     // one at a time, in the order that they came, each taking `service_ns`
  };
  Service service = Service::kParallel;
  int64_t service_ns = 0;

  // Nothing leaves in [k * stall_every_ns, k * stall_every_ns + stall_ns), k = 1, 2, ..., counted
  // from the begin: what is due then leaves at the end. 0: no stalls.
  int64_t stall_ns = 0, stall_every_ns = 0;

  // Shares of the requests, 0..1, drawn by `seed` and the request's number.
  double refuse_share = 0;  // RESOURCE_EXHAUSTED at once; takes no place in the queue
  double wrong_share = 0;   // an answer with other bytes
  double silent_share = 0;  // no answer at all
  uint64_t seed = 1;
};

enum class Answer { kGood, kWrong, kRefused, kNone };

struct Departure {
  int64_t at_ns = 0;  // when the answer is to leave, from the begin; not before it came
  Answer answer = Answer::kGood;
};

// Not thread-safe.
class Script {
 public:
  explicit Script(const ScriptOptions& options) : options_(options) {}

  // The next request's answer. `arrival_ns` is from the begin, and not less than the one before.
  Departure Next(int64_t arrival_ns);

 private:
  Answer Draw(uint64_t number) const;
  int64_t AfterStall(int64_t at_ns) const;

  const ScriptOptions options_;
  uint64_t number_ = 0;     // of the next request
  int64_t free_at_ns_ = 0;  // when the queue's server has ended all that came
};

}  // namespace castor::bench
