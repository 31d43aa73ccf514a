// Measures the errors of a batch of approximate attention that has run: exact attention for a few
// query rows of each request, on the same device, and the comparison.
//
// Engine thread only.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/jobs/job.h"
#include "engine/request.h"

namespace castor {

// Whether the job's last run must be followed by a probe.
bool NeedsProbe(const Job& job);

// One estimate per job, in order. Requires jobs of one batch, executed, that all need a probe.
absl::StatusOr<std::vector<Fidelity>> ProbeFidelity(Device& device, const Clock& clock,
                                                    const JobList& jobs);

}  // namespace castor
