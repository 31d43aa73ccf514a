// The prices of attention's kernels on this device: read from a file, or measured while the engine
// starts.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/forecast/cost_model.h"

namespace castor {

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
