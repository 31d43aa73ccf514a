// A discrete-event simulation of the scheduler: the engine's own ledger with a simulated clock and
// device. Hours of traffic take seconds, and one seed always gives the same run.
//
// The simulation takes the engine loop's place: it runs a batch on the device, lets shorter batches
// preempt it at its checkpoints, forms the next one when it ends, and withdraws requests as their
// deadlines pass. Single-threaded.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/ledger/ledger.h"

namespace castor::simulation {

using Duration = std::chrono::nanoseconds;

// Moved by the simulation; no thread waits on it.
class SimulatedClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void WaitUntil(CondVar&, Mutex&, TimePoint) override { std::abort(); }
  void MoveTo(TimePoint now) { now_ = now; }

 private:
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

// A request as the scheduler sees it.
struct Request {
  size_t source = 0;  // its row in Workload::sources
  std::string batch_key = {};
  int64_t tokens = 1;
  Duration work{};         // on the device, in addition to the launch
  MemoryNeed memory = {};  // on the device, while it runs
  std::string tenant = {};
  Priority priority = Priority::kNormal;
  std::optional<Duration> deadline = {};  // after its arrival
};

// A group of similar callers. An open source sends `rate` requests a second, whatever the answers.
// A closed source has `in_flight` callers, each of which sends its next request after an answer.
struct Source {
  std::string name = {};
  double rate = 0;
  int in_flight = 0;
  int burst = 1;  // requests that arrive together, at `rate / burst`
  std::function<Request(std::mt19937& random)> draw = {};
};

struct Workload {
  std::string name;
  std::vector<Source> sources;
  Duration length{};  // how long requests arrive, also from closed sources
};

// Requests of exact attention over `low` to `high` tokens, uniform, of any of `keys` batch keys.
std::function<Request(std::mt19937&)> Attention(int64_t low, int64_t high, int keys,
                                                std::optional<Duration> deadline = std::nullopt);

struct Settings {
  Budgets budgets{.most = {.requests = 1024, .tokens = 1 << 20, .bytes = int64_t{1} << 40},
                  .queued_time = std::chrono::seconds(30)};
  int64_t device_bytes = DeviceBudget::kNone;
  Tenants::Terms tenants = {};
  BatchLimits limits{.max_tokens = 16384, .max_requests = 256};
  Duration launch = std::chrono::microseconds(100);  // of each batch, in addition to its work
  Duration checkpoint = std::chrono::milliseconds(2);

  // Without predictions no batch preempts another either.
  bool predicts = true;
  bool preempts = true;
  // The error of predictions: the standard deviation of its logarithm.
  double error = 0;
};

enum class Fate { kAnswered, kRefused, kExpired };

// The outcome of one request.
struct Outcome {
  Ticket ticket = 0;
  Request request;
  Duration takes{};  // the actual time on the device
  Fate fate = Fate::kAnswered;
  TimePoint arrived;
  TimePoint started;  // on the device, if it ran
  TimePoint ended;    // answered, refused or withdrawn

  Duration latency() const { return ended - arrived; }
  // Answered, and before its deadline.
  bool useful() const {
    return fate == Fate::kAnswered && (!request.deadline || latency() < *request.deadline);
  }
};

// A batch and the requests that waited when it was formed, for checks of the order.
struct Formed {
  TimePoint at;
  const JobList& jobs;
  std::vector<const Job*> left;  // ready, and not in it
  bool preempts;                 // whether it preempts another
  int64_t held_bytes;            // the device's memory that others hold
};

class Simulation {
 public:
  Simulation(const Workload& workload, const Settings& settings, uint32_t seed);
  ~Simulation();

  // Called for every batch, before it runs.
  std::function<void(const Formed&)> on_batch;
  // Called after every event.
  std::function<void(const Simulation&)> on_event;

  // Runs until all requests have arrived and been answered. Returns them in the order of their
  // ends.
  std::vector<Outcome> Run();

  // As Engine::SetTenants; for the callbacks.
  void SetTenants(Tenants::Terms terms) { ledger_->SetTenants(std::move(terms)); }

  int64_t arrivals() const { return arrivals_; }
  // How many requests of the tenant are admitted and not answered.
  int64_t open_requests(const std::string& tenant) const;
  LoadStats load() const { return ledger_->load(); }
  bool device_idle() const { return runs_.empty(); }
  int64_t held_bytes() const { return load().device_bytes; }  // of the device's memory
  bool waiting() const { return load().queued_requests > 0; }

 private:
  struct Event {
    TimePoint at;
    uint64_t order;  // of events at one time
    std::function<void()> happen;

    bool operator>(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  // A run on the device. The last one runs; the others are preempted.
  struct DeviceRun {
    JobList jobs;
    Runs::Id id = 0;
    uint64_t number = 0;  // changes when it resumes, so that earlier events are void
    TimePoint since;
    Duration left{};
  };

  void At(TimePoint when, std::function<void()> happen);
  void OpenArrival(size_t source);
  void Arrive(size_t source);
  void EndAnswered();
  void Launch();
  void TryLaunch(bool preempts);
  void GoOn();
  void FinishRun();
  void End(Ticket ticket, Fate fate);

  const Workload& workload_;
  const Settings settings_;
  std::mt19937 random_;
  const std::shared_ptr<SimulatedClock> clock_ = std::make_shared<SimulatedClock>();
  Counters counters_;
  const std::shared_ptr<const BatchOutcome> outcome_ = std::make_shared<BatchOutcome>();
  const std::shared_ptr<Ledger> ledger_;
  const TimePoint last_arrival_;

  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_made_ = 0;
  Ticket last_refused_ = Ticket{1} << 62;  // refused requests have tickets of their own
  uint64_t last_run_ = 0;
  int64_t arrivals_ = 0;
  std::map<Ticket, Outcome> open_;
  std::map<Ticket, const Job*> waiting_;
  std::vector<DeviceRun> runs_;
  TimePoint checkpoint_ = TimePoint::max();  // of the last run, if one is to come
  std::vector<Outcome> outcomes_;
};

}  // namespace castor::simulation
