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

TokenizerPool::TokenizerPool(int threads, HostPool& host_pool, Scheduler& scheduler, Clock& clock,
                             Counters& counters)
    : thread_count_(threads != 0 ? threads
                                 : std::min(AvailableProcessors(),
                                            static_cast<int>(kTokenizerThreadsBounds.high))),
      host_pool_(host_pool),
      scheduler_(scheduler),
      clock_(clock),
      counters_(counters) {
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
  return {job.rank.level, served_ + bytes, job.rank, bytes};
}

TokenizerPool::Waiting::iterator TokenizerPool::Next() {
  const auto first = queue_.begin();
  if (long_at_hand_ < std::max(1, thread_count_ - 1)) return first;
  return std::find_if(first, queue_.end(),
                      [](const auto& entry) { return entry.first.bytes < kLongBytes; });
}

void TokenizerPool::Push(std::unique_ptr<Job> job) noexcept {
  {
    MutexLock lock(mu_);
    const Turn turn = TurnOf(*job);
    queue_.emplace(turn, std::move(job));
  }
  work_.NotifyOne();
}

void TokenizerPool::Run() {
  Waiting::node_type at_hand;  // reinserted without an allocation, which could fail
  bool was_long = false;
  while (true) {
    {
      MutexLock lock(mu_);
      if (was_long) --long_at_hand_;
      if (!at_hand.empty()) {
        at_hand.key() = TurnOf(*at_hand.mapped());
        queue_.insert(std::move(at_hand));
      }
      auto next = Next();
      while (next == queue_.end() && !stopped_) {
        work_.Wait(mu_);
        next = Next();
      }
      if (stopped_) return;
      at_hand = queue_.extract(next);
      served_ += at_hand.key().bytes;
      was_long = at_hand.key().bytes >= kLongBytes;
      if (was_long) ++long_at_hand_;
    }
    if (!Tokenize(at_hand.mapped())) at_hand = {};
  }
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
    return done ? StageEncode(host_pool_, job.get()) : absl::OkStatus();
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
