// The threads that call completions: never the thread that launches kernels, so that a slow caller
// does not hold up the device. The ledger has the answers, and says whose is next; here they are
// made of what has run.
#pragma once

#include "engine/ledger/counters.h"
#include "engine/ledger/ledger.h"
#include "engine/loop/thread_group.h"

namespace castor {

class Completions {
 public:
  // Both references must outlive the object.
  Completions(int threads, Ledger& ledger, Counters& counters);

 private:
  void Run() noexcept;

  Ledger& ledger_;
  Counters& counters_;
  ThreadGroup threads_;  // last: they use everything above
};

}  // namespace castor
