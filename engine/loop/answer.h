// The answers that are made of what has run.
#pragma once

#include "engine/ledger/job.h"

namespace castor {

// Builds the result, releases what else the job holds, and calls the completion. It allocates only
// a report's few bytes: without memory for them the process ends.
void Deliver(Answer answer) noexcept;

}  // namespace castor
