// The requests that wait for a batch, grouped by what may share one, in the order of policy.h.
//
// Not thread-safe: Scheduler guards it. Owns the jobs in it. Not bounded itself: admission bounds
// what gets this far.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/jobs/job.h"
#include "engine/scheduling/policy.h"

namespace castor {

class Queue {
 public:
  // Jobs of one batch key. Never empty.
  struct Group {
    std::map<Rank, std::unique_ptr<Job>> jobs;
    int64_t tokens = 0;  // of all of them

    const Job& head() const { return *jobs.begin()->second; }
  };

  bool empty() const { return heads_.empty(); }
  size_t size() const { return size_; }

  // Both end the process for want of a node rather than leave half of their work done.
  void Push(std::unique_ptr<Job> job) noexcept;

  // Takes out a job that is in the queue.
  std::unique_ptr<Job> Remove(const Job& job) noexcept;

  // The group whose head is first of all. Requires !empty(). Valid until the queue changes.
  const Group& FirstGroup() const { return *heads_.begin()->second; }

 private:
  std::unordered_map<std::string, Group> groups_;  // by batch key; nodes do not move
  std::map<Rank, Group*> heads_;                   // every group, by the rank of its head
  size_t size_ = 0;
};

}  // namespace castor
