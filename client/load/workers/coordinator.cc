#include "client/load/workers/coordinator.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "client/load/measure/run_json.h"
#include "client/load/workers/remote_worker.h"

namespace castor::load {
namespace {

using std::chrono::steady_clock;

// How often to look for workers that have fallen silent.
constexpr auto kTick = std::chrono::milliseconds(200);

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, const OnProgress& on_progress,
              const std::atomic<bool>& stop)
      : options_(options), on_progress_(on_progress), stop_(stop) {}

  void Connect(const std::vector<WorkerAddress>& addresses) {
    for (const WorkerAddress& address : addresses) {
      workers_.push_back(std::make_unique<RemoteWorker>(address, &board_));
      workers_.back()->Connect(options_);
    }
  }

  void Prepare(Job job) {
    job.workers = static_cast<uint32_t>(workers_.size());
    job.index = 0;
    for (auto& worker : workers_) {
      worker->Prepare(job, options_.version);
      ++job.index;
    }
    const auto deadline = steady_clock::now() + options_.prepare_timeout;
    std::unique_lock<std::mutex> lock(board_.mu);
    for (;;) {
      bool all = true;
      for (auto& worker : workers_) {
        if (!worker->state.failure.empty()) {
          throw std::runtime_error("worker '" + worker->target() + "': " + worker->state.failure);
        }
        all = all && worker->state.prepared;
      }
      if (all) return;
      if (stop_.load()) throw std::runtime_error("stopped before the run began");
      if (steady_clock::now() > deadline) {
        throw std::runtime_error("the workers did not prepare in time: " + Unprepared());
      }
      board_.changed.wait_for(lock, kTick);
    }
  }

  void Start() {
    const auto lead =
        std::chrono::duration_cast<std::chrono::system_clock::duration>(options_.lead);
    const auto begin = std::chrono::system_clock::now() + lead;
    for (auto& worker : workers_) worker->Start(begin);
    const std::lock_guard<std::mutex> lock(board_.mu);
    for (auto& worker : workers_) worker->state.heard = steady_clock::now();
  }

  void Await() {
    bool stopping = false;
    std::unique_lock<std::mutex> lock(board_.mu);
    for (;;) {
      bool all_ended = true;
      bool failed = false;
      for (auto& worker : workers_) {
        WorkerState& state = worker->state;
        if (!state.ended && steady_clock::now() - state.heard > options_.silence) {
          if (!state.complete && state.failure.empty()) state.failure = "it fell silent";
          worker->Cancel();
        }
        all_ended = all_ended && state.ended;
        failed = failed || !state.failure.empty();
      }
      if (all_ended) return;
      if ((failed || stop_.load()) && !stopping) {
        // Not under the lock: a write may have to wait for the worker's reader.
        stopping = true;
        lock.unlock();
        for (auto& worker : workers_) worker->Stop();
        lock.lock();
      }
      ShowProgress(lock);
      board_.changed.wait_for(lock, kTick);
    }
  }

  SharedRun Collect() {
    SharedRun shared;
    bool first = true;
    for (auto& worker : workers_) {
      WorkerReport report{.target = worker->target(),
                          .clock_ahead = worker->clock_ahead(),
                          .clock_error = worker->clock_error(),
                          .failure = worker->state.failure};
      if (worker->state.complete) {
        try {
          const RunData data = ParseRun(worker->state.json);
          if (first) {
            shared.data = data;
          } else {
            shared.data.Merge(data);
          }
          first = false;
        } catch (const std::exception& error) {
          report.failure = std::string("its result cannot be read: ") + error.what();
        }
        worker->state.json = {};
      }
      shared.workers.push_back(std::move(report));
    }
    return shared;
  }

 private:
  std::string Unprepared() const {
    std::string names;
    for (const auto& worker : workers_) {
      if (!worker->state.prepared) names += (names.empty() ? "" : ", ") + worker->target();
    }
    return names;
  }

  // Once every worker that still runs has told something new.
  void ShowProgress(std::unique_lock<std::mutex>& lock) {
    std::vector<Progress> all;
    for (const auto& worker : workers_) {
      const WorkerState& state = worker->state;
      if (!state.fresh && !state.ended) return;
      if (state.progress) all.push_back(*state.progress);
    }
    if (all.empty()) return;
    for (auto& worker : workers_) worker->state.fresh = false;
    if (!on_progress_) return;
    lock.unlock();
    on_progress_(Together(all));
    lock.lock();
  }

  const CoordinatorOptions& options_;
  const OnProgress& on_progress_;
  const std::atomic<bool>& stop_;
  Board board_;
  std::vector<std::unique_ptr<RemoteWorker>> workers_;  // their threads use the board
};

}  // namespace

Finding SharedRun::finding() const {
  Finding finding{.rule = "workers", .passed = true, .text = ""};
  std::chrono::nanoseconds error{0};
  for (const WorkerReport& worker : workers) {
    error = std::max(error, worker.clock_error);
    if (worker.failure.empty()) continue;
    finding.passed = false;
    finding.text += (finding.text.empty() ? "worker '" : "; worker '") + worker.target +
                    "' failed: " + worker.failure;
  }
  if (!finding.passed) return finding;
  char text[120];
  std::snprintf(text, sizeof(text),
                "%zu workers began together, by clocks that agree within %.3g ms", workers.size(),
                static_cast<double>(error.count()) / 1e6);
  finding.text = text;
  return finding;
}

SharedRun RunOnWorkers(const std::vector<WorkerAddress>& workers, const Job& job,
                       const CoordinatorOptions& options, const OnProgress& on_progress,
                       const std::atomic<bool>& stop) {
  if (workers.empty()) throw std::runtime_error("a shared run needs at least one worker");
  Coordinator coordinator(options, on_progress, stop);
  coordinator.Connect(workers);
  coordinator.Prepare(job);
  coordinator.Start();
  coordinator.Await();
  return coordinator.Collect();
}

}  // namespace castor::load
