#include "engine/scheduling/tokenizer_pool.h"

#include <algorithm>
#include <utility>

#include "engine/base/guarded.h"
#include "engine/base/machine.h"
#include "engine/jobs/staging.h"
#include "engine/option_bounds.h"

namespace castor {
namespace {

// Bytes of text per slice: about a millisecond of work, unless it ends in a long text.
constexpr int64_t kSliceBytes = 4096;

// A slice of this size holds a very long text.
constexpr int64_t kLongBytes = 65536;

// By how much later a request of a higher priority may come, in bytes of text begun, and still be
// tokenized first.
constexpr int64_t kHeadStartBytes = 1 << 20;

// The bytes of text in the job's next slice.
int64_t NextSlice(const Job& job) {
  const EncodeWork& work = std::get<EncodeWork>(job.work);
  const auto& input = std::get<TextInput>(work.request.input);
  size_t bytes = 0;
  for (auto i = static_cast<size_t>(work.prepared.sequences()); i < input.texts.size(); ++i) {
    if (bytes >= static_cast<size_t>(kSliceBytes)) break;
    bytes += input.texts[i].size() + (input.pairs.empty() ? 0 : input.pairs[i].size());
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

TokenizerPool::TokenizerPool(int threads, TenantTablePtr tenants, HostPool& host_pool,
                             Scheduler& scheduler, Forecast& forecast, Clock& clock,
                             Counters& counters)
    : thread_count_(threads != 0 ? threads
                                 : std::min(AvailableProcessors(),
                                            static_cast<int>(kTokenizerThreadsBounds.high))),
      host_pool_(host_pool),
      scheduler_(scheduler),
      forecast_(forecast),
      clock_(clock),
      counters_(counters),
      queue_(std::move(tenants)) {
  try {
    for (int i = 0; i < thread_count_; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {
    Stop();
    throw;
  }
}

TokenizerPool::~TokenizerPool() { Stop(); }

void TokenizerPool::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

TokenizerPool::Turn TokenizerPool::TurnOf(const Job& job) const {
  const int64_t bytes = NextSlice(job);
  const int below = static_cast<int>(Priority::kHigh) - static_cast<int>(job.priority);
  return {served_ + bytes + below * kHeadStartBytes, job.rank, bytes};
}

bool TokenizerPool::TakeNext(Turn* turn, std::unique_ptr<Job>* job) {
  const bool no_long_ones = long_at_hand_ >= std::max(1, thread_count_ - 1);
  const auto* const next = queue_.First([no_long_ones](const Turn& turn, const auto&) {
    return !no_long_ones || turn.bytes < kLongBytes;
  });
  if (next == nullptr) return false;
  *turn = next->first;
  const std::string& tenant = next->second->tenant;
  queue_.Begin(tenant);
  queue_.Charge(tenant, static_cast<double>(turn->bytes));
  *job = queue_.Remove(tenant, *turn);
  return true;
}

void TokenizerPool::Push(std::unique_ptr<Job> job) noexcept {
  {
    MutexLock lock(mu_);
    const Turn turn = TurnOf(*job);
    const std::string& tenant = job->tenant;
    queue_.Insert(tenant, turn, std::move(job));
  }
  work_.NotifyOne();
}

void TokenizerPool::Run() {
  std::unique_ptr<Job> job;  // at hand
  Turn turn;
  while (true) {
    {
      MutexLock lock(mu_);
      if (turn.bytes >= kLongBytes) --long_at_hand_;
      if (job != nullptr) {
        const std::string& tenant = job->tenant;
        const Turn again = TurnOf(*job);
        queue_.Insert(tenant, again, std::move(job));
      }
      while (!stopped_ && !TakeNext(&turn, &job)) work_.Wait(mu_);
      if (stopped_) return;
      served_ += turn.bytes;
      if (turn.bytes >= kLongBytes) ++long_at_hand_;
    }
    if (!Tokenize(job)) job.reset();
  }
}

absl::Status TokenizerPool::Finish(Job* job) {
  const EncodeWork& work = std::get<EncodeWork>(job->work);
  const std::vector<int32_t>& offsets = work.prepared.cu_seqlens;
  forecast_.LearnTexts(job->tenant, *work.model, std::get<TextInput>(work.request.input),
                       work.prepared, work.prompt == nullptr ? 0 : work.prompt->text.size());
  const Estimate estimate = forecast_.Of(*work.model, work.kernel, work.request, offsets);
  job->memory = estimate.memory;
  if (auto status = job->reservation.CheckMemory(job->memory); !status.ok()) return status;
  if (auto status = StageEncode(host_pool_, job); !status.ok()) return status;
  job->predicted = estimate.time;
  job->reservation.AdjustTime(job->predicted);
  return absl::OkStatus();
}

bool TokenizerPool::Tokenize(std::unique_ptr<Job>& job) {
  const encoder::Slice slice{.bytes = kSliceBytes,
                             .stop = [this, &job] { return !scheduler_.IsOpen(*job); }};
  if (slice.stop()) return false;
  EncodeWork& work = std::get<EncodeWork>(job->work);
  const TimePoint start = clock_.Now();
  bool done = true;
  const absl::Status status = Guarded([&]() -> absl::Status {
    const auto prepared = PrepareEncode(slice, job.get());
    if (!prepared.ok()) return prepared.status();
    done = *prepared;
    return done ? Finish(job.get()) : absl::OkStatus();
  });
  work.tokenize_us += Microseconds(start, clock_.Now());
  if (status.ok() && !done) return true;
  counters_.Tokenized(work.tokenize_us * 1e-6);
  if (status.ok()) {
    scheduler_.Tokenized(std::move(job));
  } else {
    scheduler_.Refuse(std::move(job), status);
  }
  return false;
}

}  // namespace castor
