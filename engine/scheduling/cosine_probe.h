// What a run of an encoder says about the cosines of automatic requests: an estimate, from what its
// layers lost, if it approximates; and if it is exact and follows an approximate one, the cosines
// themselves, from which later estimates are learned.
//
// Engine thread only.
#pragma once

#include <vector>

#include "engine/jobs/cosine_gains.h"
#include "engine/jobs/job.h"
#include "engine/jobs/plan.h"

namespace castor {

// Adds to the outcome of every job, in order, what there is to add. Requires jobs of one batch that
// has run. Allocates nothing but a few numbers of what is learned.
void AddCosines(const JobList& jobs, CosineGains& gains, std::vector<StepOutcome>* outcomes);

}  // namespace castor
