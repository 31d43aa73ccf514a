// Jobs that only wait, for tests of the queue and of the batches formed from it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduling/batch_limits.h"
#include "engine/scheduling/queue.h"

namespace castor {

inline constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1000));
inline constexpr BatchLimits kNoDelay = {.max_tokens = 10, .max_requests = 100};
inline constexpr std::chrono::microseconds kDelay(500);
inline constexpr BatchLimits kDelayed = {.max_tokens = 10, .max_requests = 3, .delay = kDelay};

inline std::unique_ptr<Job> MakeJob(Ticket ticket, std::string key, int64_t tokens = 1,
                                    Priority priority = Priority::kNormal,
                                    TimePoint queued = kNow) {
  auto job = std::make_unique<Job>();
  job->ticket = ticket;
  job->batch_key = std::move(key);
  job->tokens = tokens;
  job->priority = priority;
  job->queued = queued;
  job->rank = RankOf(priority, std::nullopt, queued, ticket);
  return job;
}

inline std::vector<Ticket> Tickets(const JobList& jobs) {
  std::vector<Ticket> tickets;
  for (const auto& job : jobs) tickets.push_back(job->ticket);
  return tickets;
}

// For queues without a delay, or groups that are full.
inline const Job& FirstOf(Queue& queue) { return *queue.FirstDue(kNow); }

}  // namespace castor
