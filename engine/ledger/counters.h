// The engine's counters: plain atomics and histograms that any thread may write and read.
//
// The table of kernels and models only grows. A model that is loaded again continues its row.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/error.h"
#include "engine/base/histogram.h"
#include "engine/device/device.h"
#include "engine/kernel_table.h"
#include "engine/ledger/job.h"
#include "engine/request.h"
#include "engine/requests/answer_cache.h"
#include "engine/stats.h"

namespace castor {

class Counters {
 public:
  Counters();

  // Declare work that this engine can run. One thread at a time, also beside the other methods.
  // Work beyond kMostWork is not counted.
  void ListKernels(std::span<const attention::Variant> variants);
  void ListModel(const ModelInfo& model);

  // A request got an error, from Submit or through its completion.
  void Refused(const absl::Status& status) noexcept;

  // Executed: a batch has run. Answered: some or all of its jobs are being answered. Both require
  // at least one job, and that all have one operation, kernel and model.
  void Executed(const JobList& jobs, const ExecutionTimes& times);
  void Answered(const JobList& jobs, TimePoint now);

  // A step of a request has ended, and `next` follows. After a probe, counts the measured error,
  // and whether it was too large.
  void StepEnded(const Job& job, const StepOutcome& outcome, Step next);
  void ProbedBatch(double seconds) { fidelity_seconds_.Observe(seconds); }

  // The counts of its encoder's answers in the cache; null for an encoder that is not counted.
  CacheCounts* CacheOf(const Job& job) const;

  void Tokenized(double seconds) { tokenize_seconds_.Observe(seconds); }
  void CancelledQueued() { Increment(cancelled_queued_); }
  void CancelledRunning() { Increment(cancelled_running_); }
  void DeviceFault() { Increment(device_faults_); }
  // A request was admitted, and its deadline passed before its answer.
  void DeadlineMissed() { Increment(deadline_misses_); }
  // A run has preempted another.
  void Preempted() { Increment(preemptions_); }
  // The device has worked for requests that got no answer, or a late one.
  void Wasted(double seconds) noexcept;

  // Fills in the members that are counted here: all but load, memory, device_healthy and the
  // tenants' seconds.
  void Fill(EngineStats* stats) const;

 private:
  static constexpr size_t kPriorities = static_cast<size_t>(Priority::kHigh) + 1;
  static constexpr size_t kReasons = static_cast<size_t>(Reason::kInternal) + 1;

  struct Work {
    Work(Operation operation, std::vector<KernelName> kernels, std::string model);

    const Operation operation;
    const std::vector<KernelName> kernels;  // for attention, one
    const std::string model;                // for an encoder
    std::array<std::atomic<uint64_t>, kKernelCount> requests{};
    std::atomic<uint64_t> batches = 0;
    std::atomic<uint64_t> tokens = 0;
    std::atomic<uint64_t> padded_tokens = 0;
    Histogram queue_seconds;
    Histogram copy_in_seconds;
    Histogram compute_seconds;
    Histogram copy_out_seconds;
    Histogram batch_requests;
    Histogram batch_tokens;
    std::atomic<uint64_t> automatic_requests = 0;
    std::atomic<uint64_t> automatic_rejected = 0;
    Histogram relative_error;  // without bounds for kernels whose error is not measured
    Histogram prediction_ratio;
    CacheCounts cache;  // of an encoder
  };

  static void Increment(std::atomic<uint64_t>& counter, uint64_t by = 1) {
    counter.fetch_add(by, std::memory_order_relaxed);
  }

  Work* Find(Operation operation, KernelName kernel, std::string_view model) const;
  Work* Find(const Job& job) const;

  void List(Operation operation, std::vector<KernelName> kernels, const std::string& model);

  static constexpr size_t kMostWork = 1024;
  std::vector<std::unique_ptr<Work>> work_;  // the first `listed_` are constant
  std::atomic<size_t> listed_ = 0;
  std::array<std::atomic<uint64_t>, kReasons> refusals_{};
  Histogram tokenize_seconds_;
  Histogram fidelity_seconds_;
  std::atomic<uint64_t> cancelled_queued_ = 0;
  std::atomic<uint64_t> cancelled_running_ = 0;
  std::atomic<uint64_t> device_faults_ = 0;
  std::atomic<uint64_t> deadline_misses_ = 0;
  std::atomic<uint64_t> preemptions_ = 0;
  std::atomic<uint64_t> wasted_nanoseconds_ = 0;
  std::array<Histogram, kPriorities> wait_seconds_;  // by priority
};

}  // namespace castor
