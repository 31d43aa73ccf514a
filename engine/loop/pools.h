// The thread pools next to the engine thread. Tokenizers prepare text requests for the device;
// completion threads call completions, so that a slow caller does not delay the device. The ledger
// decides what each thread takes next (ledger/pools.cc).
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/host_memory.h"
#include "engine/forecast/forecast.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/ledger.h"

namespace castor {

// Threads that all run the same function until they are told to stop.
class ThreadGroup {
 public:
  // Each thread calls `run`, which returns soon after `stop` has been called.
  ThreadGroup(int count, const std::function<void()>& run, std::function<void()> stop)
      : stop_(std::move(stop)) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back(run);
    } catch (...) {
      Stop();
      throw;
    }
  }
  ~ThreadGroup() { Stop(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

 private:
  void Stop() {
    stop_();
    for (std::thread& thread : threads_) thread.join();
  }

  const std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

// The number of tokenizer threads: EngineOptions::cpu_threads, up to a maximum.
int TokenizerThreads(int cpu_threads);

// Tokenizes requests a slice at a time. Work on a request that has been answered in the meantime
// stops between two texts, or between two parts of a long one.
class Tokenizers {
 public:
  // All references must outlive the object. The destructor waits for the slices being tokenized;
  // all waiting jobs must have been answered.
  Tokenizers(int threads, HostPool& host_pool, Ledger& ledger, Forecast& forecast,
             const Clock& clock, Counters& counters);

  // Takes an admitted job whose texts must be tokenized, and copies the texts. Errors as
  // Ledger::Tokenize.
  absl::StatusOr<Ticket> Push(std::unique_ptr<Job> job);

  // Whether it takes some 100 µs at most to prepare the request's texts or ids.
  static bool IsShort(const EncodeWork& work);
  // Prepares an admitted job, whatever its input, on this thread. Errors are the request's answer.
  absl::Status Prepare(Job* job);

 private:
  void Run() noexcept;
  // Tokenizes one slice of the job.
  void Tokenize(std::unique_ptr<Job> job);
  // Tokenizes one slice of the job. Stages the job if that was all, for which it returns true.
  absl::StatusOr<bool> PrepareSlice(const encoder::Slice& slice, Job* job);
  // Stages a tokenized job, and predicts its time and memory again.
  absl::Status Finish(Job* job);

  HostPool& host_pool_;
  Ledger& ledger_;
  Forecast& forecast_;
  const Clock& clock_;
  Counters& counters_;
  ThreadGroup threads_;  // last: its threads use the members above
};

// Builds the result, releases everything else that the job holds, and calls the completion, which
// must not throw.
void Deliver(Answer answer) noexcept;

// The threads that deliver answers.
class Completions {
 public:
  // Both references must outlive the object.
  Completions(int threads, Ledger& ledger, Counters& counters);

 private:
  void Run() noexcept;

  Ledger& ledger_;
  Counters& counters_;
  ThreadGroup threads_;  // last: its threads use the members above
};

}  // namespace castor
