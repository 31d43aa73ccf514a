#include "engine/ledger/counters.h"

#include <algorithm>

#include "engine/automatic/candidates.h"

namespace castor {
namespace {

// Seconds from 10 us to 10 s in steps of about 1.6, coarser at the ends: from a small kernel on a
// GPU to a full queue on a CPU. Every second bound is exported, including 1 ms and 100 ms; see
// server/metrics/metrics_engine.cc.
constexpr double kSeconds[] = {1e-5,   2.5e-5, 6.3e-5, 1e-4,   1.6e-4, 2.5e-4, 4e-4,
                               6.3e-4, 1e-3,   1.6e-3, 2.5e-3, 4e-3,   6.3e-3, 0.01,
                               0.016,  0.025,  0.04,   0.063,  0.1,    0.16,   0.25,
                               0.4,    0.63,   1,      1.6,    2.5,    5,      10};
constexpr double kRequests[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
constexpr double kTokens[] = {16,   32,   64,   128,   256,   512,   1024,
                              2048, 4096, 8192, 16384, 32768, 65536, 131072};
// From float32's rounding error to an unrelated result.
constexpr double kErrors[] = {1e-5, 1e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1};
// Measured / predicted time: within a quarter, within a factor of 2.
constexpr double kRatios[] = {0.5, 0.8, 1.25, 2};
// Bounds on what is added to a histogram, whose sum must stay finite.
constexpr double kMaxRatio = 1e6;
constexpr double kMaxError = 1e3;

std::span<const double> ErrorBounds(Operation operation, std::span<const KernelName> kernels) {
  if (operation != Operation::kAttend || !attention::IsApproximate(kernels.front())) return {};
  return kErrors;
}

}  // namespace

Counters::Work::Work(Operation operation, std::vector<KernelName> kernels, std::string model)
    : operation(operation),
      kernels(std::move(kernels)),
      model(std::move(model)),
      queue_seconds(kSeconds),
      copy_in_seconds(kSeconds),
      compute_seconds(kSeconds),
      copy_out_seconds(kSeconds),
      batch_requests(kRequests),
      batch_tokens(kTokens),
      relative_error(ErrorBounds(operation, this->kernels)),
      prediction_ratio(kRatios) {}

Counters::Counters()
    : work_(kMostWork),
      tokenize_seconds_(kSeconds),
      fidelity_seconds_(kSeconds),
      wait_seconds_{Histogram(kSeconds), Histogram(kSeconds), Histogram(kSeconds)} {}

void Counters::ListKernels(std::span<const attention::Variant> variants) {
  for (const auto& variant : variants) List(Operation::kAttend, {variant.kernel}, "");
}

void Counters::ListModel(const ModelInfo& model) {
  if (model.alias_of.empty()) List(Operation::kEncode, model.kernels, model.name);
}

void Counters::List(Operation operation, std::vector<KernelName> kernels,
                    const std::string& model) {
  const size_t at = listed_.load(std::memory_order_relaxed);
  if (kernels.empty() || at == work_.size()) return;
  if (Find(operation, kernels.front(), model) != nullptr) return;
  work_[at] = std::make_unique<Work>(operation, std::move(kernels), model);
  listed_.store(at + 1, std::memory_order_release);
}

Counters::Work* Counters::Find(Operation operation, KernelName kernel,
                               std::string_view model) const {
  for (size_t i = 0, listed = listed_.load(std::memory_order_acquire); i < listed; ++i) {
    const auto& work = work_[i];
    if (work->operation != operation || work->model != model) continue;
    if (operation == Operation::kEncode || work->kernels.front() == kernel) return work.get();
  }
  return nullptr;
}

Counters::Work* Counters::Find(const Job& job) const {
  const auto* const encode = std::get_if<EncodeWork>(&job.work);
  if (encode == nullptr) return Find(job.operation, job.kernel, "");
  const ModelInfo& model = encode->model->info;
  return Find(job.operation, job.kernel, model.alias_of.empty() ? model.name : model.alias_of);
}

CacheCounts* Counters::CacheOf(const Job& job) const {
  Work* const work = Find(job);
  return work == nullptr ? nullptr : &work->cache;
}

void Counters::Refused(const absl::Status& status) noexcept {
  Increment(refusals_[static_cast<size_t>(ReasonOf(status))]);
}

void Counters::Executed(const JobList& jobs, const ExecutionTimes& times) {
  Work* work = Find(*jobs.front());
  if (work == nullptr) return;
  const int64_t tokens = QueryTokens(jobs);
  Increment(work->batches);
  Increment(work->tokens, static_cast<uint64_t>(tokens));
  Increment(work->padded_tokens, static_cast<uint64_t>(times.padded_tokens));
  for (const auto& job : jobs) {
    if (job->last_run != nullptr) continue;  // count only the first wait
    const double waited = Microseconds(job->queued, job->launched) * 1e-6;
    work->queue_seconds.Observe(waited);
    wait_seconds_[static_cast<size_t>(job->priority)].Observe(waited);
  }
  const double predicted_us = PredictedUs(jobs);
  if (predicted_us > 0) {
    work->prediction_ratio.Observe(std::min(times.compute_us / predicted_us, kMaxRatio));
  }
  work->copy_in_seconds.Observe(times.copy_in_us * 1e-6);
  work->compute_seconds.Observe(times.compute_us * 1e-6);
  work->copy_out_seconds.Observe(times.copy_out_us * 1e-6);
  work->batch_requests.Observe(static_cast<double>(jobs.size()));
  work->batch_tokens.Observe(static_cast<double>(tokens));
}

void Counters::Answered(const JobList& jobs, TimePoint now) {
  for (const auto& job : jobs) {
    const bool late = job->deadline && *job->deadline <= now;
    if (late) DeadlineMissed();
    const BatchOutcome& run = *job->last_run;
    if (late || job->cancelled) Wasted(run.times.compute_us * 1e-6 / run.requests);
  }
  Work* work = Find(*jobs.front());
  if (work == nullptr) return;
  Increment(work->requests[static_cast<size_t>(jobs.front()->kernel)], jobs.size());
  for (const auto& job : jobs) {
    if (job->plan.automatic()) Increment(work->automatic_requests);
  }
}

void Counters::StepEnded(const Job& job, const StepOutcome& outcome, Step next) {
  if (!outcome.estimate) return;
  Work* work = Find(job);
  if (work == nullptr) return;
  work->relative_error.Observe(std::min(outcome.estimate->relative_error, kMaxError));
  if (next == Step::kRun) Increment(work->automatic_rejected);
}

void Counters::Wasted(double seconds) noexcept {
  Increment(wasted_nanoseconds_, static_cast<uint64_t>(std::max(0.0, seconds) * 1e9));
}

void Counters::Fill(EngineStats* stats) const {
  for (size_t i = 0, listed = listed_.load(std::memory_order_acquire); i < listed; ++i) {
    const auto& work = work_[i];
    WorkStats& row = stats->work.emplace_back();
    row.operation = NameOf(work->operation);
    if (work->operation == Operation::kAttend) row.kernel = NameOf(work->kernels.front());
    row.model = work->model;
    row.cache = {work->cache.hits, work->cache.misses, work->cache.bytes};
    for (const KernelName kernel : work->kernels) {
      const auto& count = work->requests[static_cast<size_t>(kernel)];
      // Only what this kernel computed is cached.
      const uint64_t hits = kernel == KernelName::kVanilla ? row.cache.hits : 0;
      row.requests.emplace_back(NameOf(kernel), count.load(std::memory_order_relaxed) + hits);
    }
    row.batches = work->batches.load(std::memory_order_relaxed);
    row.tokens = work->tokens.load(std::memory_order_relaxed);
    row.padded_tokens = work->padded_tokens.load(std::memory_order_relaxed);
    row.queue_seconds = work->queue_seconds.Snapshot();
    row.copy_in_seconds = work->copy_in_seconds.Snapshot();
    row.compute_seconds = work->compute_seconds.Snapshot();
    row.copy_out_seconds = work->copy_out_seconds.Snapshot();
    row.batch_requests = work->batch_requests.Snapshot();
    row.batch_tokens = work->batch_tokens.Snapshot();
    row.automatic_requests = work->automatic_requests.load(std::memory_order_relaxed);
    row.automatic_rejected = work->automatic_rejected.load(std::memory_order_relaxed);
    row.relative_error = work->relative_error.Snapshot();
    row.prediction_ratio = work->prediction_ratio.Snapshot();
  }
  for (size_t i = 0; i < kReasons; ++i) {
    stats->refusals.push_back(
        {static_cast<Reason>(i), refusals_[i].load(std::memory_order_relaxed)});
  }
  stats->tokenize_seconds = tokenize_seconds_.Snapshot();
  stats->fidelity_seconds = fidelity_seconds_.Snapshot();
  stats->cancelled_queued = cancelled_queued_.load(std::memory_order_relaxed);
  stats->cancelled_running = cancelled_running_.load(std::memory_order_relaxed);
  stats->device_faults = device_faults_.load(std::memory_order_relaxed);
  stats->deadline_misses = deadline_misses_.load(std::memory_order_relaxed);
  stats->preemptions = preemptions_.load(std::memory_order_relaxed);
  stats->wasted_seconds =
      static_cast<double>(wasted_nanoseconds_.load(std::memory_order_relaxed)) * 1e-9;
  stats->wait_seconds = {wait_seconds_[0].Snapshot(), wait_seconds_[1].Snapshot(),
                         wait_seconds_[2].Snapshot()};
}

}  // namespace castor
