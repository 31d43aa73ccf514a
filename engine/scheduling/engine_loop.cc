#include "engine/scheduling/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/calibration/warm_up.h"
#include "engine/jobs/batch_key.h"
#include "engine/scheduling/failure.h"
#include "engine/scheduling/fidelity_probe.h"

namespace castor {
namespace {

absl::Status DeviceLost(const std::string& why) {
  return MakeError(Reason::kInternal, "the device has failed" + (why.empty() ? "" : ": " + why));
}

void SetKernel(const Kernel& kernel, Job* job) {
  attention::Spec& spec = std::get<AttentionWork>(job->work).resolved.spec;
  spec.kernel = kernel;
  job->kernel = NameOf(kernel);
  job->batch_key = BatchKey(spec);
}

}  // namespace

EngineLoop::EngineLoop(Scheduler& scheduler, CompletionPool& completions, Counters& counters,
                       Clock& clock)
    : scheduler_(scheduler), completions_(completions), counters_(counters), clock_(clock) {}

EngineLoop::~EngineLoop() {
  if (thread_.joinable()) thread_.join();
}

absl::Status EngineLoop::Start(const DeviceFactory& open, const EngineOptions& options,
                               const EncoderFunctions& encoder, bool warm_up) {
  std::promise<absl::Status> opened;
  std::future<absl::Status> result = opened.get_future();
  thread_ =
      std::thread([this, &open, &options, &encoder, warm_up, opened = std::move(opened)]() mutable {
        const BoundHeartbeat bound(heartbeat_);
        const absl::Status status = Guarded([&] { return Open(open, options, encoder, warm_up); });
        const bool ok = status.ok();
        if (!ok) {
          models_ = Models();
          device_.reset();
        }
        opened.set_value(status);  // from here on the references are gone
        if (ok) Run();
      });
  return result.get();
}

absl::Status EngineLoop::Open(const DeviceFactory& open, const EngineOptions& options,
                              const EncoderFunctions& encoder, bool warm_up) {
  auto device = open(options);
  if (!device.ok()) return device.status();
  device_ = *std::move(device);
  std::vector<LoadedModel> models;
  for (const ModelSource& source : options.models) {
    if (encoder.is_cast_file && encoder.is_cast_file(source.directory)) {
      auto file = encoder.read_cast_file(source);
      if (!file.ok()) return file.status();
      models.push_back({std::move(file->info), nullptr, std::move(file->layers)});
      continue;
    }
    auto model = device_->LoadModel(source);
    if (!model.ok()) return model.status();
    ModelInfo info = encoder.info(**model);
    models.push_back({std::move(info), *std::move(model), {}});
  }
  models_ = Models(std::move(models));
  if (warm_up) {
    // The first runs take what a model's weights and libraries take; the budget bounds the rest.
    constexpr std::chrono::milliseconds kBudget{1000};
    const TimePoint start = clock_.Now();
    if (auto s = WarmUp(*device_, models_, encoder, kBudget); !s.ok()) return s;
    warm_up_seconds_ = Microseconds(start, clock_.Now()) * 1e-6;
  }
  costs_ = PrepareCosts(*device_, options);
  return absl::OkStatus();
}

void EngineLoop::Run() noexcept {
  const auto depth = static_cast<size_t>(device_->depth());
  while (true) {
    JobList jobs;
    if (running_.size() < depth) jobs = NextBatch();
    if (!jobs.empty()) {
      StartBatch(std::move(jobs));
    } else if (!running_.empty()) {
      FinishOldest();
    } else {
      break;  // NextBatch would have waited: the scheduler has been stopped
    }
  }
  // On the thread that made them; models hold the device's memory.
  models_ = Models();
  device_.reset();
}

// Waits for work only when the device has none. Empty: launch nothing for now.
JobList EngineLoop::NextBatch() {
  while (!retries_.empty()) {
    JobList jobs = std::move(retries_.front());
    retries_.pop_front();
    scheduler_.DropDead(&jobs);
    if (!jobs.empty()) return jobs;
  }
  const bool wait = running_.empty();
  if (wait) heartbeat_.SetBusy(false);
  JobList jobs = scheduler_.TakeBatch(wait);
  heartbeat_.SetBusy(!jobs.empty() || !wait);
  return jobs;
}

void EngineLoop::StartBatch(JobList jobs) {
  if (NoticeLostDevice()) {
    RefuseAll(std::move(jobs), DeviceLost(""));
    return;
  }
  const TimePoint now = clock_.Now();
  for (auto& job : jobs) {
    if (job->runs == 0) job->launched = now;
  }
  auto batch = std::make_unique<RunningBatch>(std::move(jobs));
  if (auto status = batch->Start(*device_); !status.ok()) {
    HandleFailure(std::move(batch->jobs()), status);
  } else {
    running_.push_back(std::move(batch));
  }
}

void EngineLoop::FinishOldest() {
  heartbeat_.Beat();  // the last until the device is done
  const std::unique_ptr<RunningBatch> batch = std::move(running_.front());
  running_.pop_front();
  const absl::StatusOr<ExecutionTimes> times = batch->Wait();
  if (times.ok()) {
    Succeed(std::move(batch->jobs()), *times);
  } else {
    HandleFailure(std::move(batch->jobs()), times.status());
  }
}

void EngineLoop::Succeed(JobList jobs, const ExecutionTimes& times) {
  auto outcome = std::make_shared<BatchOutcome>();
  outcome->times = times;
  outcome->requests = static_cast<int32_t>(jobs.size());
  outcome->tokens = QueryTokens(jobs);
  outcome->peak_bytes = device_->memory().device_peak_bytes;
  outcome->device = device_->info().name;
  counters_.Executed(jobs, times);
  for (auto& job : jobs) ++job->runs;
  const auto probed = std::stable_partition(jobs.begin(), jobs.end(),
                                            [](const auto& job) { return !NeedsProbe(*job); });
  if (probed == jobs.end()) return AnswerJobs(std::move(jobs), outcome);
  JobList to_probe(std::make_move_iterator(probed), std::make_move_iterator(jobs.end()));
  jobs.erase(probed, jobs.end());
  AnswerJobs(std::move(jobs), outcome);
  Judge(std::move(to_probe), outcome);
}

void EngineLoop::AnswerJobs(JobList jobs, const std::shared_ptr<const BatchOutcome>& outcome) {
  if (jobs.empty()) return;
  scheduler_.Finish(jobs);
  counters_.Answered(jobs);
  std::vector<Answer> answers;
  answers.reserve(jobs.size());
  for (auto& job : jobs) {
    job->reservation.CountAsFinished();
    answers.push_back(Success(std::move(job), outcome));
  }
  completions_.Post(std::move(answers));
}

// Measures how far the jobs' results are from exact attention. What is good enough is answered;
// what an automatic choice cannot accept runs again with its next kernel.
void EngineLoop::Judge(JobList jobs, const std::shared_ptr<const BatchOutcome>& outcome) {
  heartbeat_.Beat();
  const auto estimates = ProbeFidelity(*device_, clock_, jobs);
  if (!estimates.ok()) return HandleFailedProbe(std::move(jobs), outcome, estimates.status());
  JobList done;
  std::map<KernelName, JobList> again;  // what was one batch is one per kernel
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::unique_ptr<Job>& job = jobs[i];
    const Fidelity& estimate = (*estimates)[i];
    auto& work = std::get<AttentionWork>(job->work);
    attention::Ladder* const ladder = work.plan.ladder.get();
    const KernelName ran = job->kernel;
    const bool accepted = ladder == nullptr || ladder->Accept(estimate, outcome->times.compute_us);
    counters_.Probed(ran, estimate.relative_error, accepted);
    if (accepted) {
      work.fidelity = estimate;
      done.push_back(std::move(job));
    } else {
      SetKernel(ladder->current().kernel, job.get());
      again[job->kernel].push_back(std::move(job));
    }
  }
  counters_.ProbedBatch(estimates->front().probe_us * 1e-6);
  AnswerJobs(std::move(done), outcome);
  for (auto& [kernel, piece] : again) retries_.push_front(std::move(piece));
}

// Who asked for the estimate meets the error as if the run had failed; the others' results stand.
void EngineLoop::HandleFailedProbe(JobList jobs, const std::shared_ptr<const BatchOutcome>& outcome,
                                   const absl::Status& error) {
  const auto asked = std::stable_partition(jobs.begin(), jobs.end(), [](const auto& job) {
    return !std::get<AttentionWork>(job->work).plan.reports_fidelity;
  });
  JobList failed(std::make_move_iterator(asked), std::make_move_iterator(jobs.end()));
  jobs.erase(asked, jobs.end());
  AnswerJobs(std::move(jobs), outcome);
  if (!failed.empty()) HandleFailure(std::move(failed), error);
}

void EngineLoop::HandleFailure(JobList jobs, const absl::Status& error) {
  if (ReasonOf(error) == Reason::kInternal) counters_.DeviceFault();
  if (NoticeLostDevice()) {
    RefuseAll(std::move(jobs), DeviceLost(std::string(error.message())));
    return;
  }
  AfterFailure plan = PlanRetries(std::move(jobs), error);
  RefuseAll(std::move(plan.refused), error);
  // At the front, in order: they have waited longest.
  for (auto piece = plan.retries.rbegin(); piece != plan.retries.rend(); ++piece) {
    retries_.push_front(std::move(*piece));
  }
}

void EngineLoop::RefuseAll(JobList jobs, const absl::Status& error) {
  for (auto& job : jobs) scheduler_.Refuse(std::move(job), error);
}

// Whether the device is beyond use. The first time, everything that waits is answered.
bool EngineLoop::NoticeLostDevice() {
  if (lost_.load(std::memory_order_relaxed)) return true;
  if (device_->healthy()) return false;
  lost_.store(true, std::memory_order_relaxed);
  scheduler_.FailAll();
  for (JobList& piece : std::exchange(retries_, {})) {
    RefuseAll(std::move(piece), DeviceLost(""));
  }
  return true;
}

}  // namespace castor
