// A ledger with a fake clock, and jobs for it that never run on a device.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/ledger/ledger.h"
#include "tests/unit/loop/fake_clock.h"

namespace castor {

inline std::vector<Ticket> Tickets(const JobList& jobs) {
  std::vector<Ticket> tickets;
  for (const auto& job : jobs) tickets.push_back(job->ticket);
  return tickets;
}

class LedgerFixture : public testing::Test {
 protected:
  // A request as a test describes it.
  struct Spec {
    Cost cost = {1, 0, 0};
    double ms = 0;        // its own predicted time
    double batch_ms = 0;  // its batch's fixed time
    double until_ms = 0;  // its deadline from now; 0: none
    std::string tenant = {};
    std::string key = "a";
    Priority priority = Priority::kNormal;
    MemoryNeed memory = {};
    double correction = 1;
  };

  explicit LedgerFixture(LedgerOptions options)
      : ledger_(std::make_shared<Ledger>(std::move(options), clock_, counters_)) {}

  // Requests hold the ledger, so none may stay in it.
  ~LedgerFixture() override {
    ledger_->StartDraining();
    while (!Next().empty()) {
    }
    TakeAnswers();
  }

  std::unique_ptr<Job> Make(const Spec& spec) {
    auto job = std::make_unique<Job>();
    job->cost = spec.cost;
    job->predicted = {
        .batch_us = spec.batch_ms * 1e3, .own_us = spec.ms * 1e3, .correction = spec.correction};
    job->tenant = spec.tenant;
    job->batch_key = spec.key;
    job->priority = spec.priority;
    job->memory = spec.memory;
    if (spec.until_ms > 0) {
      job->deadline =
          clock_->Now() + std::chrono::microseconds(static_cast<int64_t>(spec.until_ms * 1e3));
    }
    return job;
  }

  // Admits a request for as long as the test keeps it, on its caller's thread.
  Job* Admit(const Spec& spec) {
    auto job = Make(spec);
    const absl::Status status = ledger_->Admit(*job);
    EXPECT_TRUE(status.ok()) << status;
    return admitted_.emplace_back(std::move(job)).get();
  }
  absl::Status Refusal(const Spec& spec) { return ledger_->Admit(*Make(spec)); }
  Reason ReasonFor(const Spec& spec) { return ReasonOf(Refusal(spec)); }
  std::chrono::milliseconds Hint(const Spec& spec) { return *RetryAfterOf(Refusal(spec)); }

  // Admits a request that is ready to run.
  Ticket Push(const Spec& spec) {
    auto job = Make(spec);
    const absl::Status status = ledger_->Admit(*job);
    EXPECT_TRUE(status.ok()) << status;
    return *ledger_->Enqueue(std::move(job));
  }

  JobList Next() { return ledger_->NextBatch(/*wait=*/false); }

  // Runs a batch for `ms`.
  void Run(JobList jobs, double ms) {
    const Runs::Id run = ledger_->BeginRun(jobs, /*preempts=*/false);
    clock_->Advance(std::chrono::microseconds(static_cast<int64_t>(ms * 1e3)));
    const double us = ledger_->EndRun(run, /*completed=*/true);
    ledger_->ChargeActual(jobs, us, /*runs_again=*/false);
    AnswerAll(std::move(jobs));
  }

  void AnswerAll(JobList jobs) {
    for (auto& job : jobs) {
      job->last_run = std::make_shared<BatchOutcome>();
    }
    ledger_->AnswerAll(std::move(jobs));
    TakeAnswers();
  }

  // The tickets and the statuses of the answers.
  std::vector<std::pair<Ticket, absl::Status>> TakeAnswers() {
    std::vector<std::pair<Ticket, absl::Status>> taken;
    Ledger::WorkSize size = Ledger::WorkSize::kNothing;
    Answer answer;
    while (ledger_->NextAnswer(/*wait=*/false, &size, &answer)) {
      taken.emplace_back(answer.job->ticket, answer.status);
      answer = {};
    }
    return taken;
  }

  const std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  Counters counters_;
  std::shared_ptr<Ledger> ledger_;
  JobList admitted_;
};

}  // namespace castor
