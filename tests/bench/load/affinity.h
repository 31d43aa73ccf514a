// Keeps this program off the server's processor, so that the load does not slow what it measures.
#pragma once

#include <sched.h>

namespace castor::bench {

// The two processors of a pinned scenario: the server's, and this program's.
struct Processors {
  int server = -1;
  int client = -1;
};

// The first two that this program may use. Ends the program where there is only one.
Processors TwoProcessors();

// While it lives, every thread of this program runs on `cpu` alone.
class PinnedTo {
 public:
  explicit PinnedTo(int cpu);
  ~PinnedTo();
  PinnedTo(const PinnedTo&) = delete;
  PinnedTo& operator=(const PinnedTo&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace castor::bench
