// What happens to a failed batch before any of its requests is refused:
//
//   out of memory   the batch is halved repeatedly, down to single requests;
//   other errors    every request is tried once more, alone, so that only the culprit fails.
//
// Pure functions on the engine thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/ledger/job.h"

namespace castor {

struct AfterFailure {
  std::vector<JobList> retries;  // in order
  JobList refused;               // no retries left
};

AfterFailure PlanRetries(JobList failed, const absl::Status& error) noexcept;

}  // namespace castor
