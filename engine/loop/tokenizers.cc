#include <algorithm>
#include <utility>

#include "engine/base/guarded.h"
#include "engine/base/machine.h"
#include "engine/loop/pools.h"
#include "engine/requests/answer_cache.h"
#include "engine/requests/staging.h"

namespace castor {
namespace {

// Bytes of text per slice: about a millisecond of work, unless a slice ends with a long text.
constexpr int64_t kSliceBytes = 4096;

// The bytes of text, or of ids, in the job's next slice.
int64_t NextSlice(const EncodeWork& work) {
  const Tokenized& tokenized = work.tokenized;
  int64_t bytes = 0;
  if (const auto* tokens = std::get_if<TokenInput>(&work.request.input)) {
    const auto lengths = encoder::LengthsOf(tokens->lengths, std::ssize(tokens->ids));
    for (size_t i = tokenized.texts.size(); i < lengths.size() && bytes < kSliceBytes; ++i) {
      bytes += lengths[i] * static_cast<int64_t>(sizeof(int64_t));
    }
    return bytes;
  }
  const auto& input = std::get<TextInput>(work.request.input);
  size_t i = work.request.runs() ? static_cast<size_t>(work.prepared.sequences())
                                 : tokenized.lengths.size();
  while (i < input.texts.size() && bytes < kSliceBytes) bytes += encoder::BytesOf(input, i++);
  return bytes;
}

}  // namespace

int TokenizerThreads(int cpu_threads) {
  constexpr int kMost = 256;
  return std::min(cpu_threads != 0 ? cpu_threads : AvailableProcessors(), kMost);
}

Tokenizers::Tokenizers(int threads, HostPool& host_pool, Ledger& ledger, Forecast& forecast,
                       const Clock& clock, Counters& counters)
    : host_pool_(host_pool),
      ledger_(ledger),
      forecast_(forecast),
      clock_(clock),
      counters_(counters),
      threads_(
          threads, [this] { Run(); }, [this] { ledger_.StopTokenizers(); }) {}

absl::StatusOr<Ticket> Tokenizers::Push(std::unique_ptr<Job> job) {
  EncodeWork& work = std::get<EncodeWork>(job->work);
  CopyTexts(&work);
  job->slice_bytes = NextSlice(work);
  return ledger_.Tokenize(std::move(job));
}

void Tokenizers::Run() noexcept {
  Ledger::WorkSize size = Ledger::WorkSize::kNothing;
  while (auto job = ledger_.NextToTokenize(&size)) Tokenize(std::move(job));
}

absl::Status Tokenizers::Finish(Job* job) {
  EncodeWork& work = std::get<EncodeWork>(job->work);
  forecast_.LearnTexts(work);
  if (FindCached(&work)) return absl::OkStatus();
  const Estimate estimate = forecast_.Of(work, work.prepared.cu_seqlens);
  job->memory = estimate.memory;
  if (auto status = ledger_.CheckMemory(job->memory); !status.ok()) return status;
  const auto cost = StageEncode(host_pool_, &work);
  if (!cost.ok()) return cost.status();
  job->cost = *cost;
  job->query_tokens = cost->tokens;
  job->predicted = estimate.time;
  return absl::OkStatus();
}

void Tokenizers::Tokenize(std::unique_ptr<Job> job) {
  const encoder::Slice slice{.bytes = kSliceBytes,
                             .stop = [this, &job] { return !ledger_.IsOpen(*job); }};
  if (slice.stop()) return;
  EncodeWork& work = std::get<EncodeWork>(job->work);
  const TimePoint start = clock_.Now();
  bool done = true;
  const absl::Status status = Guarded([&]() -> absl::Status {
    const auto prepared = PrepareEncode(slice, &work);
    if (!prepared.ok()) return prepared.status();
    done = *prepared;
    return done && work.request.runs() ? Finish(job.get()) : absl::OkStatus();
  });
  work.tokenize_us += Microseconds(start, clock_.Now());
  if (status.ok() && !done) {
    job->slice_bytes = NextSlice(work);
    return ledger_.TokenizeMore(std::move(job));
  }
  counters_.Tokenized(work.tokenize_us * 1e-6);
  if (status.ok()) {
    ledger_.Tokenized(std::move(job));
  } else {
    ledger_.Refuse(std::move(job), status);
  }
}

}  // namespace castor
