#include "engine/ledger/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"

namespace castor {
namespace {

// A copy that shares nothing with the original.
absl::Status Clone(const absl::Status& status) {
  absl::Status clone(status.code(), status.message());
  status.ForEachPayload([&clone](absl::string_view url, const absl::Cord& payload) {
    clone.SetPayload(url, absl::Cord(std::string(payload)));
  });
  return clone;
}

}  // namespace

double PredictedUs(const JobList& jobs) {
  double batch_us = 0;
  double own_us = 0;
  for (const auto& job : jobs) {
    batch_us = std::max(batch_us, job->predicted.batch_us);
    own_us += job->predicted.own_us;
  }
  return batch_us + own_us;
}

MemoryNeed MemoryOf(const JobList& jobs) {
  MemoryNeed memory;
  for (const auto& job : jobs) memory = memory + job->memory;
  return memory;
}

int64_t QueryTokens(const JobList& jobs) {
  int64_t tokens = 0;
  for (const auto& job : jobs) tokens += job->query_tokens;
  return tokens;
}

Answer Refusal(std::unique_ptr<Job> job, const absl::Status& status) {
  Answer answer = Refusal(std::move(job->done), status);
  answer.job = std::move(job);
  return answer;
}

Answer Refusal(Completion done, const absl::Status& status) {
  Answer answer;
  answer.done = std::move(done);
  answer.status = Clone(status);
  return answer;
}

Answer Success(std::unique_ptr<Job> job) {
  Answer answer;
  answer.bytes = std::visit([](const auto& work) { return work.output_bytes(); }, job->work);
  answer.done = std::move(job->done);
  answer.job = std::move(job);
  return answer;
}

}  // namespace castor
