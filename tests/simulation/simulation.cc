#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "engine/scheduling/batcher.h"

namespace castor::simulation {

Simulation::Simulation(const Workload& workload, const Settings& settings, uint32_t seed)
    : workload_(workload),
      settings_(settings),
      random_(seed),
      admission_(std::make_shared<Admission>(settings.budgets, clock_)),
      last_arrival_(clock_->Now() + workload.length),
      queue_(settings.limits) {}

Simulation::~Simulation() = default;

std::vector<Outcome> Simulation::Run() {
  for (size_t source = 0; source < workload_.sources.size(); ++source) {
    if (workload_.sources[source].rate > 0) OpenArrival(source);
    for (int i = 0; i < workload_.sources[source].in_flight; ++i) {
      At(clock_->Now(), [this, source] { Arrive(source); });
    }
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    clock_->MoveTo(event.at);
    event.happen();
    Launch();
    if (on_event) on_event(*this);
  }
  return std::move(outcomes_);
}

void Simulation::At(TimePoint when, std::function<void()> happen) {
  events_.push({when, ++events_made_, std::move(happen)});
}

// The next arrival, or burst, of an open source: a Poisson process.
void Simulation::OpenArrival(size_t source) {
  const Source& from = workload_.sources[source];
  std::exponential_distribution<double> gap(from.rate / from.burst);
  const auto wait =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(gap(random_)));
  const TimePoint when = clock_->Now() + wait;
  if (when >= last_arrival_) return;
  At(when, [this, source, burst = from.burst] {
    for (int i = 0; i < burst; ++i) Arrive(source);
    OpenArrival(source);
  });
}

void Simulation::Arrive(size_t source) {
  const TimePoint now = clock_->Now();
  Outcome outcome;
  outcome.ticket = ++last_ticket_;
  outcome.request = workload_.sources[source].draw(random_);
  outcome.request.source = source;
  outcome.arrived = now;
  const Request& request = outcome.request;
  const Ticket ticket = outcome.ticket;
  auto reservation = admission_->Reserve({.tokens = request.tokens});

  auto job = std::make_unique<Job>();
  job->ticket = ticket;
  job->batch_key = request.batch_key;
  job->tokens = request.tokens;
  job->priority = request.priority;
  job->received = job->queued = now;
  if (request.deadline) job->deadline = now + *request.deadline;
  job->rank = policy_.RankArrival(*job);
  open_.emplace(ticket, std::move(outcome));
  if (!reservation.ok()) return End(ticket, Fate::kRefused);
  job->reservation = *std::move(reservation);
  if (job->deadline) At(*job->deadline, [this, ticket] { Expire(ticket); });
  waiting_.emplace(ticket, job.get());
  queue_.Push(std::move(job));
}

void Simulation::Expire(Ticket ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) return;  // it runs, or has been answered
  const std::unique_ptr<Job> job = queue_.Remove(*found->second);
  waiting_.erase(found);
  End(ticket, Fate::kExpired);
}

// Hands the idle device the next batch.
void Simulation::Launch() {
  if (!running_.empty()) return;
  const TimePoint now = clock_->Now();
  JobList expired;
  running_ = FormBatch(queue_, now, &expired);
  for (const auto& job : expired) {
    waiting_.erase(job->ticket);
    End(job->ticket, Fate::kExpired);
  }
  if (running_.empty()) {
    // Groups that wait for company: look again when the first has waited long enough.
    const TimePoint due = queue_.DueAt();
    if (due != TimePoint::max() && due != wakes_) At(wakes_ = due, [] {});
    return;
  }
  if (on_batch) on_batch({now, running_, queue_});
  Duration time = settings_.launch;
  for (const auto& job : running_) {
    waiting_.erase(job->ticket);
    Outcome& outcome = open_.at(job->ticket);
    outcome.started = now;
    time += outcome.request.work;
  }
  busy_ += time;
  At(now + time, [this] { FinishBatch(); });
}

void Simulation::FinishBatch() {
  for (auto& job : std::exchange(running_, {})) {
    job->reservation.CountAsFinished();
    const Ticket ticket = job->ticket;
    job.reset();
    End(ticket, Fate::kAnswered);
  }
}

void Simulation::End(Ticket ticket, Fate fate) {
  auto ended = open_.extract(ticket);
  Outcome& outcome = ended.mapped();
  outcome.fate = fate;
  outcome.ended = clock_->Now();
  const size_t source = outcome.request.source;
  outcomes_.push_back(std::move(outcome));
  if (workload_.sources[source].in_flight == 0) return;
  // The next of a closed source; a refused caller waits a little first.
  const TimePoint next =
      clock_->Now() + (fate == Fate::kRefused ? std::chrono::milliseconds(100) : Duration(0));
  if (next < last_arrival_) At(next, [this, source] { Arrive(source); });
}

}  // namespace castor::simulation
