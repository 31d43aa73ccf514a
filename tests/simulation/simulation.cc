#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

namespace castor::simulation {
namespace {

// What a CPU of two cores takes for exact attention over one sequence, roughly: linear up to a few
// hundred tokens, then quadratic; 64K tokens take some 25 s.
Duration AttentionTime(int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  return Duration(static_cast<int64_t>(1000 * n + 6 * n * n));
}

double InUs(Duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

std::function<Request(std::mt19937&)> Attention(int64_t low, int64_t high, int keys,
                                                std::optional<Duration> deadline) {
  return [=](std::mt19937& random) {
    Request request;
    request.tokens = std::uniform_int_distribution<int64_t>(low, high)(random);
    request.work = AttentionTime(request.tokens);
    request.batch_key = std::to_string(random() % static_cast<uint32_t>(keys));
    request.deadline = deadline;
    return request;
  };
}

Simulation::Simulation(const Workload& workload, const Settings& settings, uint32_t seed)
    : workload_(workload),
      settings_(settings),
      random_(seed),
      ledger_(std::make_shared<Ledger>(
          LedgerOptions{
              .budgets = settings.budgets, .limits = settings.limits, .tenants = settings.tenants},
          clock_, counters_)),
      last_arrival_(clock_->Now() + workload.length) {
  ledger_->device_memory().SetMost(settings.device_bytes);
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
    ledger_->Expire();
    Launch();
    EndAnswered();
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

  auto job = std::make_unique<Job>();
  job->cost.tokens = request.tokens;
  if (settings_.predicts) {
    job->predicted = {.batch_us = InUs(settings_.launch), .own_us = InUs(request.work)};
  }
  job->memory = request.memory;
  job->batch_key = request.batch_key;
  job->tenant = request.tenant;
  job->priority = request.priority;
  job->received = now;
  if (request.deadline) job->deadline = now + *request.deadline;
  const bool admitted = ledger_->Admit(*job).ok();
  const Ticket ticket = admitted ? job->ticket : ++last_refused_;
  outcome.ticket = ticket;
  open_.emplace(ticket, std::move(outcome));
  if (!admitted) return End(ticket, Fate::kRefused);
  // Events at its deadline and the end of its batch's delay, so that the ledger looks at them.
  if (job->deadline) At(*job->deadline, [] {});
  if (settings_.limits.delay.count() > 0) At(now + settings_.limits.delay, [] {});
  waiting_.emplace(ticket, job.get());
  (void)ledger_->Enqueue(std::move(job));
}

// Ends the requests whose answers the ledger has.
void Simulation::EndAnswered() {
  Ledger::WorkSize size = Ledger::WorkSize::kNothing;
  while (true) {
    Answer answer;
    if (!ledger_->NextAnswer(/*wait=*/false, &size, &answer)) return;
    const Ticket ticket = answer.job->ticket;
    waiting_.erase(ticket);
    answer.job.reset();
    End(ticket, answer.status.ok() ? Fate::kAnswered : Fate::kExpired);
  }
}

// Gives the device the next batch if it is idle or at a checkpoint.
void Simulation::Launch() {
  if (runs_.empty()) {
    TryLaunch(/*preempts=*/false);
    return;
  }
  if (!settings_.preempts || checkpoint_ != TimePoint::max() || !waiting()) return;
  // The next multiple of the interval after the run began or resumed.
  const TimePoint now = clock_->Now();
  const auto passed = (now - runs_.back().since) / settings_.checkpoint;
  checkpoint_ = runs_.back().since + (passed + 1) * settings_.checkpoint;
  At(checkpoint_, [this, number = runs_.back().number] {
    if (runs_.empty() || runs_.back().number != number) return;
    checkpoint_ = TimePoint::max();
    TryLaunch(/*preempts=*/true);
  });
}

void Simulation::TryLaunch(bool preempts) {
  const TimePoint now = clock_->Now();
  if (preempts && !ledger_->HasPreemptor()) return;
  JobList jobs = preempts ? ledger_->TakePreemptor() : ledger_->NextBatch(/*wait=*/false);
  EndAnswered();  // those that were too late to join
  if (jobs.empty()) return;
  for (const auto& job : jobs) waiting_.erase(job->ticket);
  if (on_batch) {
    std::vector<const Job*> left;
    for (const auto& [ticket, job] : waiting_) left.push_back(job);
    on_batch({now, jobs, left, preempts, held_bytes()});
  }
  if (preempts) {
    DeviceRun& below = runs_.back();
    below.left -= now - below.since;
    below.number = 0;
  }
  DeviceRun run;
  run.left = settings_.launch;
  for (const auto& job : jobs) {
    Outcome& outcome = open_.at(job->ticket);
    outcome.started = now;
    run.left += outcome.takes;
  }
  run.id = ledger_->BeginRun(jobs, preempts);
  run.jobs = std::move(jobs);
  runs_.push_back(std::move(run));
  GoOn();
}

// The last run begins or resumes.
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
  DeviceRun run = std::move(runs_.back());
  runs_.pop_back();
  const double us = ledger_->EndRun(run.id, /*completed=*/true);
  ledger_->ChargeActual(run.jobs, us, /*runs_again=*/false);
  for (auto& job : run.jobs) job->last_run = outcome_;
  ledger_->AnswerAll(std::move(run.jobs));
  EndAnswered();
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
  // A closed source sends its next request; a refused caller waits first.
  const Duration pause = fate == Fate::kRefused ? std::chrono::milliseconds(100) : Duration(0);
  const TimePoint next = clock_->Now() + pause;
  if (next < last_arrival_) At(next, [this, source] { Arrive(source); });
}

}  // namespace castor::simulation
