#include <algorithm>
#include <utility>

#include "engine/base/guarded.h"
#include "engine/base/machine.h"
#include "engine/encoder/text/prompts.h"
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

bool Tokenizers::IsShort(const EncodeWork& work) {
  constexpr size_t kMostBytes = 256;
  constexpr size_t kBytesPerText = 16;  // the fixed cost of a text
  if (const auto* tokens = std::get_if<TokenInput>(&work.request.input)) {
    return tokens->ids.size() * sizeof(int64_t) <= kMostBytes;
  }
  const auto* const input = std::get_if<TextInput>(&work.request.input);
  if (input == nullptr) return false;
  size_t bytes = 0;
  for (size_t i = 0; i < input->texts.size() && bytes <= kMostBytes; ++i) {
    bytes += kBytesPerText + static_cast<size_t>(encoder::BytesOf(*input, i)) +
             encoder::PromptTextOf(work.request, work.model->info.prompts, i).size();
  }
  return bytes <= kMostBytes;
}

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
  if (work.tokenizes()) forecast_.LearnTexts(work);
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

absl::StatusOr<bool> Tokenizers::PrepareSlice(const encoder::Slice& slice, Job* job) {
  EncodeWork& work = std::get<EncodeWork>(job->work);
  const bool tokenizes = work.tokenizes();  // staging frees the ids
  const TimePoint start = clock_.Now();
  const absl::StatusOr<bool> done = Guarded([&]() -> absl::StatusOr<bool> {
    const auto prepared = PrepareEncode(slice, &work);
    if (!prepared.ok() || !*prepared || !work.request.runs()) return prepared;
    if (absl::Status status = Finish(job); !status.ok()) return status;
    return true;
  });
  if (!tokenizes) return done;
  work.tokenize_us += Microseconds(start, clock_.Now());
  if (!done.ok() || *done) counters_.Tokenized(work.tokenize_us * 1e-6);
  return done;
}

absl::Status Tokenizers::Prepare(Job* job) {
  CopyTexts(&std::get<EncodeWork>(job->work));
  return PrepareSlice({}, job).status();
}

void Tokenizers::Tokenize(std::unique_ptr<Job> job) {
  const encoder::Slice slice{.bytes = kSliceBytes,
                             .stop = [this, &job] { return !ledger_.IsOpen(*job); }};
  if (slice.stop()) return;
  const absl::StatusOr<bool> done = PrepareSlice(slice, job.get());
  if (!done.ok()) {
    ledger_.Refuse(std::move(job), done.status());
  } else if (*done) {
    ledger_.Tokenized(std::move(job));
  } else {
    job->slice_bytes = NextSlice(std::get<EncodeWork>(job->work));
    ledger_.TokenizeMore(std::move(job));
  }
}

}  // namespace castor
