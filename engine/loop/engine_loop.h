// The engine thread: one per device. It opens the device, loads the first models, and then keeps
// the device busy: it takes the next batch, launches it, waits for the oldest, and passes results
// on.
//
// The thread owns the device and makes every call on it that is not marked "any thread".
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/run_control.h"
#include "engine/device/device.h"
#include "engine/forecast/calibration.h"
#include "engine/forecast/forecast.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/job.h"
#include "engine/ledger/ledger.h"
#include "engine/loop/running_batch.h"
#include "engine/residents/residents.h"

namespace castor {

using DeviceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(const EngineOptions& options)>;

// Reads a file of CAST layers into host memory, or lets the device load a model directory. Takes
// seconds. Errors name the file.
absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source);

class EngineLoop {
 public:
  // All references must outlive the object.
  EngineLoop(Ledger& ledger, Counters& counters, Residents& residents, Clock& clock);

  // Joins the thread; Ledger::Stop must have been called if Start succeeded.
  ~EngineLoop();

  // Starts the thread. Returns when the device is open and the models are loaded and, with
  // `warm_up`, have run, or when one of these steps has failed. Called once.
  absl::Status Start(const DeviceFactory& open, const EngineOptions& options, bool warm_up);

  // Any thread, after Start has succeeded. Call only those methods of the device that are marked
  // "any thread".
  const Device& device() const { return *device_; }
  Device& loading_device() { return *device_; }  // for LoadModel
  const PreparedCosts& costs() const { return costs_; }
  Forecast& forecast() { return *forecast_; }
  double warm_up_seconds() const { return warm_up_seconds_; }

  // Runs a batch on a caller's thread, which has the engine thread's turn (Ledger::Enqueue), and
  // ends the turn. Returns the jobs to deliver; what failed is answered already.
  JobList RunInTurn(JobList jobs) noexcept;

  Progress progress() const { return heartbeat_.Read(); }
  bool healthy() const { return device_->healthy() && !lost_.load(std::memory_order_relaxed); }

 private:
  class Checkpoints;

  absl::Status Open(const DeviceFactory& open, const EngineOptions& options, bool warm_up);
  absl::Status LoadModels(const EngineOptions& options);
  // Frees the models and the device, on the thread that created them.
  void Close();
  // The thread's loop, which calls all functions below. An allocation that fails while a job moves
  // between owners ends the process; calls into the device are guarded where they are made.
  void Run() noexcept;
  JobList NextBatch();
  JobList NextRetry();
  void FinishOldest();
  void RunPreemptor();
  std::unique_ptr<RunningBatch> TryStart(JobList jobs, bool preempts);
  void Finish(std::unique_ptr<RunningBatch> batch);
  void HandleEnded(JobList jobs);
  void RecordRun(RunningBatch& batch, const ExecutionTimes& times);
  double EndRun(Runs::Id run, bool wasted);  // returns its microseconds on the device
  void Continue(JobList jobs, const std::vector<StepOutcome>& outcomes);
  void Answer(JobList jobs);
  void Probe(JobList jobs);
  void HandleFailure(JobList jobs, const absl::Status& error) noexcept;
  void RefuseAll(JobList jobs, const absl::Status& error);
  bool NoticeLostDevice();

  Ledger& ledger_;
  Counters& counters_;
  Residents& residents_;
  Clock& clock_;

  // Set while the thread starts, constant afterwards.
  std::unique_ptr<Device> device_;
  PreparedCosts costs_;
  std::optional<Forecast> forecast_;
  double warm_up_seconds_ = 0;

  // The engine thread's, or of the caller that has its turn.
  std::deque<std::unique_ptr<RunningBatch>> running_;  // oldest first, at most device_->depth()
  // Batches to run before new ones: parts of failed batches, and requests whose automatic choice of
  // a kernel was rejected.
  std::deque<JobList> retries_;
  JobList* lent_answers_ = nullptr;            // where a caller's turn wants its answers
  TimePoint next_release_ = TimePoint::min();  // of unused staging memory

  Heartbeat heartbeat_;
  std::atomic<bool> lost_ = false;
  std::thread thread_;
};

}  // namespace castor
