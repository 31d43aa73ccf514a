#include "engine/loop/running_batch.h"

#include <algorithm>
#include <utility>

#include "engine/automatic/fidelity.h"
#include "engine/base/guarded.h"

namespace castor {

RunningBatch::RunningBatch(JobList jobs) noexcept : jobs_(std::move(jobs)) {
  if (jobs_.front()->operation == Operation::kAttend) {
    attention_.spec = std::get<AttentionWork>(jobs_.front()->work).resolved.spec;
    attention_.requests.reserve(jobs_.size());
    for (const auto& job : jobs_) {
      attention_.requests.push_back(std::get<AttentionWork>(job->work).problem);
    }
  } else {
    const auto& first = std::get<EncodeWork>(jobs_.front()->work);
    encode_.model = first.model.encoder();
    encode_.kernel = first.kernel;
    encode_.items.reserve(jobs_.size());
    for (const auto& job : jobs_) {
      for (const OutputWork& output : std::get<EncodeWork>(job->work).outputs) {
        encode_.items.push_back(output.item);
      }
    }
    // Rows of one task lie together, so that its adapters multiply them at once.
    if (!std::ranges::is_sorted(encode_.items, {}, &encoder::BatchItem::task)) {
      std::ranges::stable_sort(encode_.items, {}, &encoder::BatchItem::task);
    }
  }
}

absl::Status RunningBatch::Start(Device& device, RunControl& control) {
  auto execution = Guarded([&] {
    return jobs_.front()->operation == Operation::kAttend ? device.Launch(attention_, control)
                                                          : device.Launch(encode_, control);
  });
  if (!execution.ok()) return execution.status();
  execution_ = *std::move(execution);
  return absl::OkStatus();
}

absl::StatusOr<ExecutionTimes> RunningBatch::Wait() {
  return Guarded([&] { return execution_->Wait(); });
}

namespace {

using attention::Problem;
using attention::Spec;

// One request's exact rows: a cross-attention problem of a few of its queries and all its keys.
struct ExactRows {
  attention::FidelityRows rows;
  HostBuffer query;   // [rows, heads, head_dim]
  HostBuffer output;  // [rows, heads, value_dim]
  Problem problem;    // points into the members above and the request's own tensors
};

absl::Status Stage(const Job& job, HostPool& pool, ExactRows* exact) {
  const auto& work = std::get<AttentionWork>(job.work);
  const Spec& spec = work.resolved.spec;
  const int64_t query_row = spec.heads * spec.head_dim;
  const int64_t value_row = spec.heads * spec.value_dim;
  exact->rows = attention::DrawFidelityRows(attention::SeedOf(spec.kernel), job.plan.probe_rows(),
                                            work.resolved.cu_seqlens_q);
  const size_t rows = exact->rows.tokens.size();
  auto query = pool.Allocate(rows * static_cast<size_t>(query_row) * SizeOf(spec.dtype));
  if (!query.ok()) return query.status();
  auto output = pool.Allocate(rows * static_cast<size_t>(value_row) * SizeOf(spec.dtype));
  if (!output.ok()) return output.status();
  exact->query = *std::move(query);
  exact->output = *std::move(output);
  attention::GatherRows(spec.dtype, work.problem.query, work.problem.query_stride, query_row,
                        exact->rows.tokens, exact->query.data());

  exact->problem = work.problem;
  exact->problem.query = exact->query.data();
  exact->problem.query_stride = query_row;
  exact->problem.output = exact->output.data();
  exact->problem.output_stride = value_row;
  exact->problem.log_sum_exp = nullptr;
  exact->problem.cu_seqlens_q = exact->rows.cu_seqlens;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Fidelity>> Probe(Device& device, const Clock& clock, const JobList& jobs,
                                            RunControl& control) {
  const TimePoint start = clock.Now();
  const std::shared_ptr<HostPool> pool = device.host_pool();
  AttentionBatch batch;
  batch.spec = std::get<AttentionWork>(jobs.front()->work).resolved.spec;
  batch.spec.kernel = Vanilla{};
  batch.spec.log_sum_exp = false;
  std::vector<ExactRows> exact(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto status = Stage(*jobs[i], *pool, &exact[i]);
    if (!status.ok()) return status;
    batch.requests.push_back(exact[i].problem);
  }
  const auto execution = device.Launch(batch, control);
  if (!execution.ok()) return execution.status();
  const auto times = (*execution)->Wait();
  if (!times.ok()) return times.status();

  std::vector<Fidelity> estimates(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto& work = std::get<AttentionWork>(jobs[i]->work);
    const Spec& spec = work.resolved.spec;
    const std::vector<int32_t>& offsets = exact[i].rows.cu_seqlens;
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      estimates[i].rows = std::max(estimates[i].rows, offsets[s + 1] - offsets[s]);
    }
    estimates[i].relative_error = attention::RelativeError(
        spec.dtype, work.problem.output, work.problem.output_stride, spec.heads * spec.value_dim,
        exact[i].rows.tokens, exact[i].output.data());
  }
  const double us = Microseconds(start, clock.Now());
  for (Fidelity& estimate : estimates) estimate.probe_us = us;
  return estimates;
}

}  // namespace

std::vector<StepOutcome> ProbeFidelity(Device& device, const Clock& clock, Counters& counters,
                                       const JobList& jobs, RunControl& control) {
  const auto estimates = Guarded([&] { return Probe(device, clock, jobs, control); });
  std::vector<StepOutcome> outcomes(jobs.size(), {.status = estimates.status()});
  if (!estimates.ok()) return outcomes;
  for (size_t i = 0; i < jobs.size(); ++i) outcomes[i].estimate = (*estimates)[i];
  counters.ProbedBatch(estimates->front().probe_us * 1e-6);
  return outcomes;
}

}  // namespace castor
