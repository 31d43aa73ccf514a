// The automatic kernel's cost model, when an engine starts: read from the cache, or measured on the
// idle device by short runs of each kernel.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "engine/attention/cost_model.h"
#include "engine/device/device.h"
#include "engine/engine.h"

namespace castor {

struct PreparedCosts {
  attention::CostModel model;
  CostModelInfo info;
};

// What EngineOptions says about the cost model. Never fails: an engine without a model is an engine
// whose automatic kernel is the most exact one, and the reason stands in the info. A device without
// approximate kernels has nothing to choose, and nothing is measured.
PreparedCosts PrepareCosts(Device& device, const EngineOptions& options);

// Runs the kernels that the automatic choice may take, in each dtype, on problems that tell the
// terms of their cost apart, and fits the model. The problems are sized so that one takes about a
// millisecond. A kernel that fails is left out; when `budget` is over, so is what is missing, but
// float32 stands in for a type that was not reached.
struct MeasuredCosts {
  attention::CostModel model;
  bool complete = true;  // the budget sufficed
};
MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget);

}  // namespace castor
