#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "engine/scheduling/batcher.h"

namespace castor::simulation {
namespace {

double InUs(Duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

Simulation::Simulation(const Workload& workload, const Settings& settings, uint32_t seed)
    : workload_(workload),
      settings_(settings),
      random_(seed),
      tenants_(std::make_shared<TenantTable>(settings.tenants)),
      admission_(std::make_shared<Admission>(settings.budgets, clock_, tenants_)),
      last_arrival_(clock_->Now() + workload.length),
      queue_(settings.limits, tenants_) {
  admission_->device_memory()->SetMost(settings.device_bytes);
}

Simulation::~Simulation() = default;

int64_t Simulation::open_requests(const std::string& tenant) const {
  return std::count_if(open_.begin(), open_.end(),
                       [&](const auto& open) { return open.second.request.tenant == tenant; });
}

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
  ++arrivals_;
  Outcome outcome;
  outcome.request = workload_.sources[source].draw(random_);
  outcome.request.source = source;
  outcome.arrived = now;
  const Request& request = outcome.request;
  const double off =
      settings_.error == 0 ? 1 : std::lognormal_distribution<>(0, settings_.error)(random_);
  outcome.takes = std::chrono::duration_cast<Duration>(request.work * off);

  Claim claim;
  claim.cost.tokens = request.tokens;
  if (settings_.predicts) {
    claim.time = {.batch_us = InUs(settings_.launch), .own_us = InUs(request.work)};
  }
  claim.memory = request.memory;
  claim.batch_key = request.batch_key;
  claim.tenant = request.tenant;
  claim.priority = request.priority;
  if (request.deadline) claim.deadline = now + *request.deadline;

  auto job = std::make_unique<Job>();
  job->batch_key = request.batch_key;
  job->tenant = request.tenant;
  job->tokens = request.tokens;
  job->priority = request.priority;
  job->predicted = claim.time;
  job->memory = request.memory;
  job->received = job->queued = now;
  job->deadline = claim.deadline;
  auto reservation = admission_->Reserve(claim);
  const Ticket ticket = reservation.ok() ? reservation->rank().sequence : ++last_refused_;
  outcome.ticket = ticket;
  open_.emplace(ticket, std::move(outcome));
  if (!reservation.ok()) return End(ticket, Fate::kRefused);
  job->ticket = ticket;
  job->rank = reservation->rank();
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

// Hands the device the next batch: an idle one, or one that is at a checkpoint.
void Simulation::Launch() {
  if (runs_.empty()) {
    if (TryLaunch(/*passes=*/false)) return;
    // Groups that wait for company: look again when the first has waited long enough.
    const TimePoint due = queue_.DueAt();
    if (due != TimePoint::max() && due != wakes_) At(wakes_ = due, [] {});
    return;
  }
  if (!settings_.passes || checkpoint_ != TimePoint::max() || queue_.empty()) return;
  // The next multiple of the interval after the run began, or went on.
  const TimePoint now = clock_->Now();
  const auto passed = (now - runs_.back().since) / settings_.checkpoint;
  checkpoint_ = runs_.back().since + (passed + 1) * settings_.checkpoint;
  At(checkpoint_, [this, number = runs_.back().number] {
    if (runs_.empty() || runs_.back().number != number) return;
    checkpoint_ = TimePoint::max();
    TryLaunch(/*passes=*/true);
  });
}

bool Simulation::TryLaunch(bool passes) {
  const TimePoint now = clock_->Now();
  Opening opening{.pace = admission_->runs().Pace(now),
                  .free_bytes = admission_->free_device_bytes()};
  if (passes) {
    opening.beside = Opening::Beside::kHeldUp;
    opening.passage = admission_->runs().MayPass(now);
  }
  if (opening.passage.closed()) return false;
  JobList expired;
  JobList jobs = FormBatch(queue_, now, &expired, opening);
  for (const auto& job : expired) {
    waiting_.erase(job->ticket);
    End(job->ticket, Fate::kExpired);
  }
  if (jobs.empty()) return false;
  if (on_batch) on_batch({now, jobs, queue_, passes, held_bytes()});
  if (passes) {
    ++preemptions_;
    DeviceRun& below = runs_.back();
    below.left -= now - below.since;
    below.number = 0;
    busy_ += now - below.since;
  }
  DeviceRun run;
  run.left = settings_.launch;
  for (const auto& job : jobs) {
    job->reservation.LeaveQueue();
    waiting_.erase(job->ticket);
    Outcome& outcome = open_.at(job->ticket);
    outcome.started = now;
    run.left += outcome.takes;
  }
  run.id = admission_->runs().Begin(RunPlanOf(jobs, passes), now);
  run.jobs = std::move(jobs);
  runs_.push_back(std::move(run));
  GoOn();
  return true;
}

// The last run begins, or goes on.
void Simulation::GoOn() {
  DeviceRun& run = runs_.back();
  run.since = clock_->Now();
  run.number = ++last_run_;
  checkpoint_ = TimePoint::max();
  At(run.since + run.left, [this, number = run.number] {
    if (!runs_.empty() && runs_.back().number == number) FinishRun();
  });
}

void Simulation::FinishRun() {
  const DeviceRun run = std::move(runs_.back());
  runs_.pop_back();
  busy_ += run.left;
  admission_->runs().End(run.id, clock_->Now());
  for (const auto& job : run.jobs) {
    job->reservation.Release();
    End(job->ticket, Fate::kAnswered);
  }
  if (!runs_.empty()) GoOn();
}

void Simulation::End(Ticket ticket, Fate fate) {
  auto ended = open_.extract(ticket);
  Outcome& outcome = ended.mapped();
  outcome.fate = fate;
  outcome.ended = clock_->Now();
  const size_t source = outcome.request.source;
  outcomes_.push_back(std::move(outcome));
  if (workload_.sources[source].in_flight == 0) return;
  // The next of a closed source; a refused caller waits a little longer first.
  Duration pause = fate == Fate::kRefused ? std::chrono::milliseconds(100) : Duration(0);
  if (const Duration mean = workload_.sources[source].think; mean > Duration(0)) {
    std::exponential_distribution<double> think(1.0 / static_cast<double>(mean.count()));
    pause += Duration(static_cast<int64_t>(think(random_)));
  }
  const TimePoint next = clock_->Now() + pause;
  if (next < last_arrival_) At(next, [this, source] { Arrive(source); });
}

}  // namespace castor::simulation
