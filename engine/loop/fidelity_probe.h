// The probe step of a plan: measures the errors of a batch of approximate attention that has run.
// It computes exact attention for a few query rows of each request, on the same device, and
// compares.
//
// Engine thread only.
#pragma once

#include <vector>

#include "engine/automatic/plan.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/job.h"

namespace castor {

// The outcome for every job, in order: an estimate each, or one error for all. Counts the time of a
// probe that succeeds. Requires executed jobs of one batch, whose plans say Step::kProbe.
std::vector<StepOutcome> ProbeFidelity(Device& device, const Clock& clock, Counters& counters,
                                       const JobList& jobs, RunControl& control);

}  // namespace castor
