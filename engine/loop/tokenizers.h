// The threads that tokenize text requests before they are ready for the device. The ledger has
// those that wait, and says which is next; what was answered in the meantime is dropped, also
// between two texts or two parts of a long one.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/host_memory.h"
#include "engine/forecast/forecast.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/ledger.h"
#include "engine/loop/thread_group.h"

namespace castor {

// How many there are: as many as EngineOptions::cpu_threads, but not too many.
int TokenizerThreads(int cpu_threads);

class Tokenizers {
 public:
  // All references must outlive the object. Its destructor finishes or stops what is at hand; what
  // else waits must have been answered.
  Tokenizers(int threads, HostPool& host_pool, Ledger& ledger, Forecast& forecast,
             const Clock& clock, Counters& counters);

  // Hands over a job that the ledger has admitted and whose texts must be tokenized; copies them.
  // Errors as Ledger::Tokenize.
  absl::StatusOr<Ticket> Push(std::unique_ptr<Job> job);

 private:
  void Run() noexcept;
  // Tokenizes one slice of the job.
  void Tokenize(std::unique_ptr<Job> job);
  // Stages a job that is tokenized, and predicts its time and memory again.
  absl::Status Finish(Job* job);

  HostPool& host_pool_;
  Ledger& ledger_;
  Forecast& forecast_;
  const Clock& clock_;
  Counters& counters_;
  ThreadGroup threads_;  // last: they use everything above
};

}  // namespace castor
