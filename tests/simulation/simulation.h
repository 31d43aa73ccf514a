// A discrete-event simulation of the scheduler: the engine's own Admission, SchedulingPolicy, Queue
// and FormBatch over a clock and a device that are only counted. Hours of traffic take seconds, and
// a seed makes the same run again.
//
// What is simulated is the engine loop: one batch at a time on the device, the next formed when it
// ends; requests withdrawn as their deadlines pass. Single-threaded.
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
#include <tuple>
#include <vector>

#include "engine/base/clock.h"
#include "engine/jobs/admission.h"
#include "engine/scheduling/queue.h"
#include "engine/scheduling/scheduling_policy.h"
#include "tests/simulation/workload.h"

namespace castor::simulation {

// Moved by the simulation. Nobody waits on it.
class SimulatedClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void WaitUntil(CondVar&, Mutex&, TimePoint) override { std::abort(); }
  void MoveTo(TimePoint now) { now_ = now; }

 private:
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

struct Settings {
  Cost budgets{.requests = 1024, .tokens = 1 << 20, .bytes = int64_t{1} << 40};
  BatchLimits limits{.max_tokens = 16384, .max_requests = 256};
  Duration launch = std::chrono::microseconds(100);  // what each batch takes beside its work
};

enum class Fate { kAnswered, kRefused, kExpired };

// What became of one request.
struct Outcome {
  Ticket ticket = 0;
  Request request;
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

// What a batch was and what waited when it was formed, for checks of the order.
struct Formed {
  TimePoint at;
  const JobList& jobs;
  Queue& queue;  // what was left behind
};

class Simulation {
 public:
  Simulation(const Workload& workload, const Settings& settings, uint32_t seed);
  ~Simulation();

  // Called for every batch, before it runs.
  std::function<void(const Formed&)> on_batch;
  // Called after every event.
  std::function<void(const Simulation&)> on_event;

  // Runs until all requests have arrived and been answered. In the order of their ends.
  std::vector<Outcome> Run();

  Cost in_use() const { return admission_->in_use(); }
  const Settings& settings() const { return settings_; }
  bool device_idle() const { return running_.empty(); }
  bool waiting() const { return !queue_.empty(); }
  Duration busy() const { return busy_; }  // time in which the device ran

 private:
  struct Event {
    TimePoint at;
    uint64_t order;  // of events at one time
    std::function<void()> happen;

    bool operator>(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  void At(TimePoint when, std::function<void()> happen);
  void OpenArrival(size_t source);
  void Arrive(size_t source);
  void Expire(Ticket ticket);
  void Launch();
  void FinishBatch();
  void End(Ticket ticket, Fate fate);

  const Workload& workload_;
  const Settings settings_;
  std::mt19937 random_;
  const std::shared_ptr<SimulatedClock> clock_ = std::make_shared<SimulatedClock>();
  const std::shared_ptr<Admission> admission_;
  const TimePoint last_arrival_;
  SchedulingPolicy policy_;
  Queue queue_;

  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_made_ = 0;
  Ticket last_ticket_ = 0;
  std::map<Ticket, Outcome> open_;
  std::map<Ticket, const Job*> waiting_;
  JobList running_;
  TimePoint wakes_ = TimePoint::max();  // the next look at a queue whose groups wait for company
  Duration busy_{};
  std::vector<Outcome> outcomes_;
};

}  // namespace castor::simulation
