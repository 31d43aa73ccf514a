#include "engine/jobs/job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "engine/base/clock.h"
#include "engine/jobs/batch_key.h"

namespace castor {
namespace {

ExecutionReport MakeReport(const Job& job, const Kernel& kernel) {
  const BatchOutcome& outcome = *job.last_run;
  ExecutionReport report;
  report.kernel.kernel = kernel;
  report.kernel.device = outcome.device;
  report.kernel.backend = std::string(outcome.times.backend);
  report.kernel.measured_us = outcome.times.compute_us;
  report.timing.decode_us = Microseconds(job.received, job.queued);
  report.timing.queue_us = Microseconds(job.queued, job.launched);
  report.timing.copy_in_us = outcome.times.copy_in_us;
  report.timing.compute_us = outcome.times.compute_us;
  report.timing.copy_out_us = outcome.times.copy_out_us;
  report.batch.id = outcome.id;
  report.batch.begun = outcome.begun;
  report.batch.ended = outcome.ended;
  report.batch.requests = outcome.requests;
  report.batch.tokens = outcome.tokens;
  report.batch.padded_tokens = outcome.times.padded_tokens;
  report.memory.workspace_bytes = outcome.times.workspace_bytes;
  report.memory.peak_bytes = outcome.peak_bytes;
  job.plan.Describe(&report);
  return report;
}

AttentionResult TakeResult(const Job& job, AttentionWork& work) {
  AttentionResult result;
  result.output.dtype = work.resolved.spec.dtype;
  result.output.shape = std::move(work.resolved.output_shape);
  result.output.data = std::move(work.output);
  result.report = MakeReport(job, work.resolved.spec.kernel);
  return result;
}

EncodeResult TakeResult(const Job& job, EncodeWork& work) {
  EncodeResult result;
  result.model = work.model->info.name;
  result.output.dtype = DType::kFloat32;
  result.output.shape = {work.item.output_rows(), work.item.dimensions};
  result.output.data = std::move(work.output);
  result.lengths = std::move(work.lengths);
  result.token_counts = std::move(work.token_counts);
  result.truncated = std::move(work.prepared.truncated);
  result.report = MakeReport(job, work.kernel);
  return result;
}

// A copy that shares nothing with the original.
absl::Status Clone(const absl::Status& status) {
  absl::Status clone(status.code(), status.message());
  status.ForEachPayload([&clone](absl::string_view url, const absl::Cord& payload) {
    clone.SetPayload(url, absl::Cord(std::string(payload)));
  });
  return clone;
}

template <typename Work, typename Done>
void DeliverAs(Answer answer) {
  Done done = std::move(std::get<Done>(answer.done));
  if (!answer.status.ok()) {
    answer.job.reset();
    std::move(done)(std::move(answer.status));
    return;
  }
  auto result = TakeResult(*answer.job, std::get<Work>(answer.job->work));
  // Everything but the answer leaves the budgets before the caller is told: it may submit again
  // from `done`.
  auto share = std::make_shared<Reservation>(std::move(answer.job->reservation));
  answer.job.reset();
  share->KeepOnly(static_cast<int64_t>(result.output.data.size()));
  result.output.share = std::move(share);
  std::move(done)(std::move(result));
}

}  // namespace

std::string_view NameOf(Operation operation) {
  return operation == Operation::kAttend ? "attend" : "encode";
}

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

ActiveRuns::Plan RunPlanOf(const JobList& jobs, bool passes) {
  const MemoryNeed memory = MemoryOf(jobs);
  ActiveRuns::Plan plan{.predicted_us = PredictedUs(jobs),
                        .tenant = jobs.front()->tenant,
                        .half_turn = jobs.front()->half_turn,
                        .passes = passes,
                        .device_bytes = memory.bytes(),
                        .activation_bytes = memory.activations};
  for (const auto& job : jobs) {
    plan.longest_us = std::max(plan.longest_us, job->predicted.alone_us());
    if (plan.tenant != job->tenant) plan.tenant.reset();
  }
  return plan;
}

int64_t QueryTokens(const JobList& jobs) {
  int64_t tokens = 0;
  for (const auto& job : jobs) tokens += job->query_tokens;
  return tokens;
}

void UseKernel(const Kernel& kernel, Job* job) {
  job->kernel = NameOf(kernel);
  if (auto* work = std::get_if<EncodeWork>(&job->work)) {
    work->kernel = kernel;
    job->batch_key = BatchKey(work->model->generation, kernel);
    return;
  }
  attention::Spec& spec = std::get<AttentionWork>(job->work).resolved.spec;
  spec.kernel = kernel;
  job->batch_key = BatchKey(spec);
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
  answer.done = std::move(job->done);
  answer.job = std::move(job);
  return answer;
}

void Deliver(Answer answer) noexcept {
  if (std::holds_alternative<AttentionCompletion>(answer.done)) {
    DeliverAs<AttentionWork, AttentionCompletion>(std::move(answer));
  } else {
    DeliverAs<EncodeWork, EncodeCompletion>(std::move(answer));
  }
}

}  // namespace castor
