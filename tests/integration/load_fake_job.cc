#include "tests/integration/load_fake_job.h"

#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace castor::testing {
namespace {

using load::Cell;
using load::Job;
using load::Outcome;
using load::Progress;
using load::RunData;
using load::Second;

constexpr size_t kSeconds = 2000;  // so that the result is larger than one message

std::mutex mu;
std::vector<std::chrono::steady_clock::time_point> begins;

RunData Share(int64_t requests, const Job& job) {
  RunData run;
  run.workload_toml = job.workload_toml;
  run.classes = {"fake"};
  run.objectives.resize(1);
  run.endpoints = job.endpoints;
  run.asked_seconds = static_cast<double>(kSeconds);
  run.cells.assign(1, std::vector<Cell>(job.endpoints.size()));
  run.seconds.assign(kSeconds, std::vector<Second>(1));
  for (int64_t i = job.index; i < requests; i += job.workers) {
    Second& second = run.seconds[static_cast<size_t>(i) % kSeconds][0];
    ++run.cells[0][0].outcomes[static_cast<size_t>(Outcome::kOk)];
    run.cells[0][0].intended.Record(i * 1000);
    ++second.outcomes[static_cast<size_t>(Outcome::kOk)];
    second.intended.Record(i * 1000);
  }
  return run;
}

void TellUntilStopped(const load::OnProgress& on_progress, const std::atomic<bool>& stop) {
  Progress progress;
  progress.phase = "running";
  progress.total_seconds = 60;
  progress.classes = {"fake"};
  progress.in_flight = 1;
  while (!stop.load()) {
    progress.elapsed_seconds += 1;
    on_progress(progress);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

load::RunJob PrepareFake(const Job& job) {
  const std::string mode = job.flags.at("mode");
  const bool fails = job.index == 1;
  if (mode == "fail-in-prepare" && fails) throw std::runtime_error("no such model");
  return [=](std::chrono::steady_clock::time_point begin, const load::OnProgress& on_progress,
             const std::atomic<bool>& stop) {
    {
      const std::lock_guard<std::mutex> lock(mu);
      begins.push_back(begin);
    }
    if (mode == "fail-in-run" && fails) throw std::runtime_error("the disk is full");
    if (mode != "count") TellUntilStopped(on_progress, stop);
    return Share(std::stoll(job.workload_toml), job);
  };
}

RunData WholeFake(int64_t requests) {
  Job job;
  job.workload_toml = std::to_string(requests);
  job.endpoints = {"one", "two"};
  return Share(requests, job);
}

std::vector<std::chrono::steady_clock::time_point> TakeFakeBegins() {
  const std::lock_guard<std::mutex> lock(mu);
  return std::exchange(begins, {});
}

}  // namespace castor::testing
