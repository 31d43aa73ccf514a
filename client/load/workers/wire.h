// What travels between coordinator and workers, as messages. A progress's histograms are rebuilt
// from their buckets' middles, which suits a live view; the result itself travels whole.
#pragma once

#include <string>
#include <vector>

#include "castor/worker/v1/worker.pb.h"
#include "client/load/drive/progress.h"
#include "client/load/workers/job.h"

namespace castor::load {

namespace wire = ::castor::worker::v1;

wire::WorkerProgress ToMessage(const Progress& progress);
Progress FromMessage(const wire::WorkerProgress& message);

// What several workers say of one run: counts add up, and the slowest worker tells the time.
Progress Together(const std::vector<Progress>& workers);

wire::Prepare ToMessage(const Job& job, const std::string& version);
// Throws std::invalid_argument when the job makes no sense.
Job FromMessage(const wire::Prepare& message);

}  // namespace castor::load
