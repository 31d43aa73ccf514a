#include "client/load/workers/wire.h"

#include <algorithm>
#include <stdexcept>

namespace castor::load {
namespace {

constexpr uint32_t kMaxWorkers = 10'000;

void Fill(const Second& second, wire::SecondCounts* message) {
  for (const int64_t count : second.outcomes) message->add_outcomes(count);
  message->set_good(second.good);
  second.intended.ForEach([&](int64_t lowest, int64_t highest, int64_t count) {
    message->add_latency_ns(lowest + (highest - lowest) / 2);
    message->add_counts(count);
  });
  message->set_max_lag_ns(second.max_lag_ns);
  message->set_in_flight(second.in_flight);
}

Second Read(const wire::SecondCounts& message) {
  Second second;
  const int outcomes = std::min(message.outcomes_size(), kOutcomes);
  for (int i = 0; i < outcomes; ++i) second.outcomes[static_cast<size_t>(i)] = message.outcomes(i);
  second.good = message.good();
  const int buckets = std::min(message.latency_ns_size(), message.counts_size());
  for (int i = 0; i < buckets; ++i) {
    second.intended.Record(message.latency_ns(i), message.counts(i));
  }
  second.max_lag_ns = message.max_lag_ns();
  second.in_flight = message.in_flight();
  return second;
}

void Add(const std::vector<Second>& from, std::vector<Second>* to) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i].Add(from[i]);
}

}  // namespace

wire::WorkerProgress ToMessage(const Progress& progress) {
  wire::WorkerProgress message;
  message.set_phase(progress.phase);
  message.set_elapsed_seconds(progress.elapsed_seconds);
  message.set_total_seconds(progress.total_seconds);
  for (const std::string& name : progress.classes) message.add_classes(name);
  for (const Second& second : progress.last) Fill(second, message.add_last());
  for (const Second& second : progress.all) Fill(second, message.add_all());
  message.set_in_flight(progress.in_flight);
  message.set_cpu_share(progress.cpu_share);
  return message;
}

Progress FromMessage(const wire::WorkerProgress& message) {
  Progress progress;
  progress.phase = message.phase();
  progress.elapsed_seconds = message.elapsed_seconds();
  progress.total_seconds = message.total_seconds();
  progress.classes.assign(message.classes().begin(), message.classes().end());
  for (const auto& second : message.last()) progress.last.push_back(Read(second));
  for (const auto& second : message.all()) progress.all.push_back(Read(second));
  progress.in_flight = message.in_flight();
  progress.cpu_share = message.cpu_share();
  return progress;
}

Progress Together(const std::vector<Progress>& workers) {
  Progress sum;
  for (const Progress& worker : workers) {
    if (sum.phase.empty() || worker.elapsed_seconds < sum.elapsed_seconds) {
      sum.phase = worker.phase;
      sum.elapsed_seconds = worker.elapsed_seconds;
      sum.total_seconds = worker.total_seconds;
    }
    if (sum.classes.empty()) sum.classes = worker.classes;
    Add(worker.last, &sum.last);
    Add(worker.all, &sum.all);
    sum.in_flight += worker.in_flight;
    sum.cpu_share = std::max(sum.cpu_share, worker.cpu_share);
  }
  return sum;
}

wire::Prepare ToMessage(const Job& job, const std::string& version) {
  wire::Prepare message;
  message.set_version(version);
  message.set_workload_toml(job.workload_toml);
  message.set_seed(job.seed);
  for (const std::string& endpoint : job.endpoints) message.add_endpoints(endpoint);
  message.set_index(job.index);
  message.set_workers(job.workers);
  message.mutable_flags()->insert(job.flags.begin(), job.flags.end());
  return message;
}

Job FromMessage(const wire::Prepare& message) {
  if (message.workers() == 0 || message.workers() > kMaxWorkers ||
      message.index() >= message.workers()) {
    throw std::invalid_argument("the job is for worker " + std::to_string(message.index()) +
                                " of " + std::to_string(message.workers()) +
                                ", and there can be 1 to 10,000, counted from 0");
  }
  if (message.endpoints().empty()) throw std::invalid_argument("the job names no endpoint");
  Job job;
  job.workload_toml = message.workload_toml();
  job.seed = message.seed();
  job.endpoints.assign(message.endpoints().begin(), message.endpoints().end());
  job.index = message.index();
  job.workers = message.workers();
  job.flags.insert(message.flags().begin(), message.flags().end());
  return job;
}

}  // namespace castor::load
