#include "engine/loop/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/cast_file.h"
#include "engine/loop/running_batch.h"
#include "engine/requests/work.h"

namespace castor {
namespace {

absl::Status DeviceLost(const std::string& why) {
  return MakeError(Reason::kInternal, "the device has failed" + (why.empty() ? "" : ": " + why));
}

// While the device is idle, staging memory is given back to the system once it has not been used
// for one to two times this long.
constexpr std::chrono::seconds kReleaseEvery{15};

// Whether these jobs have run before, and their automatic choice of a kernel was rejected.
bool RunsAgain(const JobList& jobs) { return jobs.front()->last_run != nullptr; }

// Makes a job run with another kernel from now on.
void UseKernel(const Kernel& kernel, Job* job) {
  attention::Spec& spec = std::get<AttentionWork>(job->work).resolved.spec;
  spec.kernel = kernel;
  job->kernel = NameOf(kernel);
  job->batch_key = BatchKey(spec);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source) {
  LoadedModel model;
  if (encoder::IsCastFile(source.directory)) {
    auto file = encoder::ReadCastFile(source);
    if (!file.ok()) return file.status();
    model.info = std::move(file->info);
    model.cast_layers = std::move(file->layers);
    return model;
  }
  auto loaded = device.LoadModel(source);
  if (!loaded.ok()) return loaded.status();
  model.encoder = *std::move(loaded);
  model.info = model.encoder->info();
  return model;
}

// The model among `loaded`, which come from the first of `sources`, that has the weights of
// `source`; or null.
const LoadedModel* SameWeights(const ModelSource& source, const std::vector<ModelSource>& sources,
                               const std::vector<LoadedModel>& loaded) {
  for (size_t i = 0; i < loaded.size(); ++i) {
    std::error_code error;
    if (source.dtype == sources[i].dtype && source.int8 == sources[i].int8 &&
        source.adapters == sources[i].adapters &&
        std::filesystem::equivalent(source.directory, sources[i].directory, error)) {
      return &loaded[i];
    }
  }
  return nullptr;
}

// One run's checkpoints, on the engine thread: ends the run when all of its requests are abandoned,
// lets a shorter batch preempt it (ledger/runs.h), and answers earlier batches that are done.
class EngineLoop::Checkpoints final : public RunControl {
 public:
  Checkpoints(EngineLoop& loop, const JobList& jobs)
      : RunControl(kInterval), loop_(loop), jobs_(jobs) {}

  // Whether the run was ended because all of its jobs were abandoned.
  bool ended() const { return ended_; }

 private:
  // Short compared with a request's usual wait, long compared with a query of the ledger.
  static constexpr std::chrono::milliseconds kInterval{2};

  bool WantsCheckpoint() noexcept override {
    ended_ = loop_.ledger_.AllAbandoned(jobs_);
    answers_older_ = !ended_ && !loop_.running_.empty() && loop_.running_.front()->Done();
    preempts_ = !ended_ && loop_.lent_answers_ == nullptr && loop_.ledger_.HasPreemptor();
    return ended_ || answers_older_ || preempts_;
  }

  // noexcept, because the guard around the device would swallow an exception.
  absl::Status AtCheckpoint() noexcept override {
    if (ended_) {
      return MakeError(Reason::kCancelled, "every request of this run was cancelled or expired");
    }
    if (answers_older_) loop_.FinishOldest();
    if (preempts_) loop_.RunPreemptor();
    return absl::OkStatus();
  }

  EngineLoop& loop_;
  const JobList& jobs_;
  bool ended_ = false;
  bool answers_older_ = false;
  bool preempts_ = false;
};

EngineLoop::EngineLoop(Ledger& ledger, Counters& counters, Residents& residents, Clock& clock)
    : ledger_(ledger), counters_(counters), residents_(residents), clock_(clock) {}

EngineLoop::~EngineLoop() {
  if (thread_.joinable()) thread_.join();
}

absl::Status EngineLoop::Start(const DeviceFactory& open, const EngineOptions& options,
                               bool warm_up) {
  std::promise<absl::Status> opened;
  std::future<absl::Status> result = opened.get_future();
  thread_ = std::thread([this, &open, &options, warm_up, opened = std::move(opened)]() mutable {
    const BoundHeartbeat bound(heartbeat_);
    const absl::Status status = Guarded([&] { return Open(open, options, warm_up); });
    const bool ok = status.ok();
    if (!ok) Close();
    opened.set_value(status);  // from here on the captured references dangle
    if (ok) Run();
  });
  return result.get();
}

absl::Status EngineLoop::Open(const DeviceFactory& open, const EngineOptions& options,
                              bool warm_up) {
  auto device = open(options);
  if (!device.ok()) return device.status();
  device_ = *std::move(device);
  DeviceBudget& budget = ledger_.device_memory();
  budget.SetMost(options.max_device_bytes > 0 ? options.max_device_bytes
                                              : AutomaticDeviceBytes(*device_));
  if (auto status = LoadModels(options); !status.ok()) return status;
  EncoderPrices encoders;
  if (warm_up) {
    // Each model runs some inputs however long that takes; the budget bounds its further runs.
    constexpr std::chrono::milliseconds kBudget{1000};
    const TimePoint start = clock_.Now();
    auto measured = WarmUp(*device_, *residents_.list(), clock_, kBudget);
    if (!measured.ok()) return measured.status();
    encoders = *std::move(measured);
    warm_up_seconds_ = Microseconds(start, clock_.Now()) * 1e-6;
  }
  costs_ = PrepareCosts(*device_, options);
  forecast_.emplace(device_->variants(), device_->copies_tensors(), costs_.model,
                    std::move(encoders));
  return absl::OkStatus();
}

// Takes the weights of the models, and room for those of the catalog, from the device's budget. So
// that budget, like the ledger's others, stays what it is while the engine runs.
absl::Status EngineLoop::LoadModels(const EngineOptions& options) {
  DeviceBudget& budget = ledger_.device_memory();
  std::vector<LoadedModel> models;
  for (const ModelSource& source : options.models) {
    const TimePoint start = clock_.Now();
    const LoadedModel* const same = SameWeights(source, options.models, models);
    auto model = same != nullptr ? *same : LoadModel(*device_, source);
    if (!model.ok()) return model.status();
    if (same != nullptr) {
      model->info.alias_of = same->info.name;
      model->info.name = source.name;
    } else if (!budget.TakeWeights(model->encoder != nullptr ? model->info.weight_bytes : 0)) {
      return MakeError(Reason::kTooLarge, "the weights of model \"" + source.name + "\" take " +
                                              std::to_string(model->info.weight_bytes) +
                                              " bytes of the device's memory, and " +
                                              std::to_string(budget.for_runs()) + " of " +
                                              std::to_string(budget.most()) +
                                              " are free (--max-device-bytes)");
    }
    model->info.directory = source.directory;
    model->info.load_seconds = Microseconds(start, clock_.Now()) * 1e-6;
    if (options.on_model_loaded) options.on_model_loaded(model->info);
    models.push_back(*std::move(model));
    residents_.AddPinned(source, models.back());
  }
  if (options.catalog.control == ModelControl::kNone) return absl::OkStatus();
  const int64_t set = options.catalog.weights_budget;
  const int64_t weights = set > 0 ? set : std::max(budget.most() / 2, budget.weights());
  if (weights < budget.weights() || !budget.TakeWeights(weights - budget.weights())) {
    return InvalidField("weights_budget",
                        std::to_string(weights) +
                            " bytes are not between those of the models that " +
                            "the engine starts with, " + std::to_string(budget.weights()) +
                            ", and max_device_bytes, " + std::to_string(budget.most()));
  }
  residents_.SetBudget(weights);
  return absl::OkStatus();
}

void EngineLoop::Close() {
  residents_.Clear();
  device_.reset();
}

void EngineLoop::Run() noexcept {
  const auto depth = static_cast<size_t>(device_->depth());
  while (true) {
    JobList jobs;
    if (running_.size() < depth) jobs = NextBatch();
    if (!jobs.empty()) {
      auto batch = TryStart(std::move(jobs), /*preempts=*/false);
      if (batch != nullptr) running_.push_back(std::move(batch));
    } else if (!running_.empty()) {
      FinishOldest();
    } else {
      break;  // NextBatch waits for work unless the ledger has been stopped
    }
  }
  Close();
}

JobList EngineLoop::RunInTurn(JobList jobs) noexcept {
  const BoundHeartbeat bound(heartbeat_);
  heartbeat_.SetBusy(true);
  JobList answers;
  lent_answers_ = &answers;
  for (; !jobs.empty(); jobs = NextRetry()) {
    if (auto batch = TryStart(std::move(jobs), /*preempts=*/false)) Finish(std::move(batch));
  }
  lent_answers_ = nullptr;
  heartbeat_.SetBusy(false);
  ledger_.EndTurn();
  return answers;
}

JobList EngineLoop::NextRetry() {
  while (!retries_.empty()) {
    if (!running_.empty() && MemoryOf(retries_.front()).bytes() > ledger_.free_device_bytes()) {
      return {};  // it must wait until a run has ended
    }
    JobList jobs = std::move(retries_.front());
    retries_.pop_front();
    ledger_.AnswerAbandoned(&jobs);
    if (!jobs.empty()) return jobs;
  }
  return {};
}

// Waits for work only if nothing runs. An empty result means to launch nothing now.
JobList EngineLoop::NextBatch() {
  if (!retries_.empty()) {
    JobList jobs = NextRetry();
    if (!jobs.empty() || !retries_.empty()) return jobs;
  }
  const bool wait = running_.empty();
  if (wait) heartbeat_.SetBusy(false);
  JobList jobs;
  while ((jobs = ledger_.NextBatch(wait, next_release_)).empty() && wait) {
    if (clock_.Now() < next_release_) break;  // the ledger has been stopped
    device_->host_pool()->ReleaseUnused();
    next_release_ = clock_.Now() + kReleaseEvery;
  }
  heartbeat_.SetBusy(!jobs.empty() || !wait);
  return jobs;
}

// Null if the batch could not be started; its jobs have then been handled.
std::unique_ptr<RunningBatch> EngineLoop::TryStart(JobList jobs, bool preempts) {
  if (NoticeLostDevice()) {
    RefuseAll(std::move(jobs), DeviceLost(""));
    return nullptr;
  }
  const TimePoint now = clock_.Now();
  for (auto& job : jobs) {
    if (job->last_run == nullptr) job->launched = now;
  }
  auto batch = std::make_unique<RunningBatch>(std::move(jobs));
  batch->id = ledger_.BeginRun(batch->jobs(), preempts);
  batch->begun = now;
  Checkpoints control(*this, batch->jobs());
  const absl::Status status = batch->Start(*device_, control);
  if (status.ok()) return batch;
  const double us = EndRun(batch->id, /*wasted=*/true);
  if (control.ended()) {
    ledger_.ChargeActual(batch->jobs(), us, RunsAgain(batch->jobs()));
    HandleEnded(std::move(batch->jobs()));
  } else {
    Continue(std::move(batch->jobs()), {{.status = status}});
  }
  return nullptr;
}

// Called at a checkpoint of a run or a probe.
void EngineLoop::RunPreemptor() {
  JobList jobs = ledger_.TakePreemptor();
  if (jobs.empty()) return;
  counters_.Preempted();
  if (auto batch = TryStart(std::move(jobs), /*preempts=*/true)) Finish(std::move(batch));
}

double EngineLoop::EndRun(Runs::Id run, bool wasted) {
  const double us = ledger_.EndRun(run, /*completed=*/!wasted);
  if (wasted) counters_.Wasted(us * 1e-6);
  return us;
}

void EngineLoop::FinishOldest() {
  heartbeat_.Beat();  // there is no other until the device is done
  std::unique_ptr<RunningBatch> batch = std::move(running_.front());
  running_.pop_front();
  Finish(std::move(batch));
}

void EngineLoop::Finish(std::unique_ptr<RunningBatch> batch) {
  const absl::StatusOr<ExecutionTimes> times = batch->Wait();
  EndRun(batch->id, /*wasted=*/!times.ok());
  if (!times.ok()) return Continue(std::move(batch->jobs()), {{.status = times.status()}});
  ledger_.ChargeActual(batch->jobs(), times->compute_us, RunsAgain(batch->jobs()));
  RecordRun(*batch, *times);
  const Forecast::RunSample sample = forecast_->SampleOf(batch->jobs(), times->compute_us);
  Continue(std::move(batch->jobs()), {{.compute_us = times->compute_us}});
  forecast_->Learn(sample);  // after the answers, which do not depend on it
}

void EngineLoop::RecordRun(RunningBatch& batch, const ExecutionTimes& times) {
  const JobList& jobs = batch.jobs();
  auto run = std::make_shared<BatchOutcome>();
  run->id = batch.id;
  run->begun = batch.begun;
  run->ended = clock_.Now();
  run->times = times;
  run->requests = static_cast<int32_t>(jobs.size());
  run->tokens = QueryTokens(jobs);
  run->peak_bytes = device_->memory().device_peak_bytes;
  run->device = device_->info().name;
  counters_.Executed(jobs, times);
  for (const auto& job : jobs) job->last_run = run;
}

// Asks every job's plan for the next step, and takes it. A single outcome, such as an error,
// applies to all jobs.
void EngineLoop::Continue(JobList jobs, const std::vector<StepOutcome>& outcomes) {
  JobList done;
  JobList to_probe;
  JobList failed;
  std::map<std::string, JobList> again;  // the batch splits by the next kernel and its parameters
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::unique_ptr<Job>& job = jobs[i];
    const StepOutcome& outcome = outcomes[outcomes.size() > 1 ? i : 0];
    const Step next = job->plan.Next(outcome);
    counters_.StepEnded(*job, outcome, next);
    switch (next) {
      case Step::kRun:
        UseKernel(job->plan.kernel(), job.get());
        job->predicted = forecast_->Of(*job).time;
        again[job->batch_key].push_back(std::move(job));
        break;
      case Step::kProbe:
        to_probe.push_back(std::move(job));
        break;
      case Step::kAnswer:
        done.push_back(std::move(job));
        break;
      case Step::kFail:
        failed.push_back(std::move(job));
        break;
    }
  }
  if (!done.empty()) Answer(std::move(done));
  for (auto& [key, piece] : again) retries_.push_front(std::move(piece));
  if (!failed.empty()) HandleFailure(std::move(failed), outcomes.front().status);
  if (!to_probe.empty()) Probe(std::move(to_probe));
}

void EngineLoop::Answer(JobList jobs) {
  if (lent_answers_ == nullptr) return ledger_.AnswerAll(std::move(jobs));
  ledger_.CloseAll(jobs);
  std::ranges::move(jobs, std::back_inserter(*lent_answers_));
}

void EngineLoop::Probe(JobList jobs) {
  heartbeat_.Beat();
  Checkpoints control(*this, jobs);
  const Runs::Id run = ledger_.BeginRun(jobs, /*preempts=*/false, /*is_probe=*/true);
  const auto outcomes = ProbeFidelity(*device_, clock_, counters_, jobs, control);
  EndRun(run, /*wasted=*/control.ended());
  if (control.ended()) return HandleEnded(std::move(jobs));
  Continue(std::move(jobs), outcomes);
}

// Handles the jobs of a run that was ended because all of them were abandoned.
void EngineLoop::HandleEnded(JobList jobs) {
  ledger_.AnswerAbandoned(&jobs);
  if (!jobs.empty()) retries_.push_front(std::move(jobs));
}

// Retries before a request is refused: a batch that is out of memory is halved, down to single
// requests; after another error each request is tried once more, alone, so that only the culprit
// fails.
void EngineLoop::HandleFailure(JobList jobs, const absl::Status& error) noexcept {
  constexpr int kMaxDeviceErrors = 2;  // per request
  if (ReasonOf(error) == Reason::kInternal) counters_.DeviceFault();
  if (NoticeLostDevice()) {
    RefuseAll(std::move(jobs), DeviceLost(std::string(error.message())));
    return;
  }
  // Retries go to the front, in order: these jobs have waited longest.
  const bool no_memory = ReasonOf(error) == Reason::kOutOfMemory;
  if (no_memory && jobs.size() > 1) {
    const auto middle = jobs.begin() + static_cast<ptrdiff_t>(jobs.size() / 2);
    retries_.emplace_front(std::make_move_iterator(middle), std::make_move_iterator(jobs.end()));
    jobs.erase(middle, jobs.end());
    retries_.push_front(std::move(jobs));
    return;
  }
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    if (no_memory || ++(*job)->device_errors >= kMaxDeviceErrors) {
      ledger_.Refuse(std::move(*job), error);
    } else {
      retries_.emplace_front().push_back(std::move(*job));
    }
  }
}

void EngineLoop::RefuseAll(JobList jobs, const absl::Status& error) {
  for (auto& job : jobs) ledger_.Refuse(std::move(job), error);
}

// Whether the device is lost. When it is first seen to be lost, answers all waiting jobs.
bool EngineLoop::NoticeLostDevice() {
  if (lost_.load(std::memory_order_relaxed)) return true;
  if (device_->healthy()) return false;
  lost_.store(true, std::memory_order_relaxed);
  ledger_.FailAll();
  for (JobList& piece : std::exchange(retries_, {})) {
    RefuseAll(std::move(piece), DeviceLost(""));
  }
  return true;
}

}  // namespace castor
