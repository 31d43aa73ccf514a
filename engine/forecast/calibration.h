// The first runs, while the engine starts: so threads, code, memory pages and what libraries
// prepare per shape are ready for the first request, and what cannot run is never served. They also
// tell the prices of models, and of attention's kernels where no file holds them.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/forecast/cost_model.h"
#include "engine/forecast/encoder_costs.h"
#include "engine/models/models.h"

namespace castor {

// Runs each model on a few short inputs, however long that takes: as many as its costs need. Then,
// until `budget` is spent on it, on further shapes and poolings. Then, until it is spent once more,
// runs each kernel in each dtype that the device supports. An error names the model or kernel that
// failed.
absl::StatusOr<EncoderPrices> WarmUp(Device& device, const ModelSet& models, const Clock& clock,
                                     std::chrono::milliseconds budget);

struct PreparedCosts {
  CostModel model;
  CostModelInfo info;
};

// Reads or measures the cost model as EngineOptions says. Never fails: without a model the
// automatic kernel is the most exact one, and the info gives the reason. A device without
// approximate kernels has nothing to choose, so nothing is read or measured.
PreparedCosts PrepareCosts(Device& device, const EngineOptions& options);

// Runs each kernel in each dtype on some fifteen problems that take about half a millisecond, a few
// times, and fits prices to the median of each. A kernel that fails, or that `budget` does not
// reach, is left out; a dtype that it does not reach has float32's prices.
struct MeasuredCosts {
  CostModel model;
  bool complete = true;  // the budget sufficed, and nothing failed
};
MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget);

}  // namespace castor
