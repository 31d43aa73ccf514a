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

// Runs the kernels that the automatic choice may take on problems that tell the terms of their cost
// apart, in float32, and fits the model; another dtype's prices are float32's times a factor from
// one problem. The problems are sized so that vanilla takes about a millisecond. A kernel that
// fails or that `budget` does not reach is left out; a dtype that it does not reach has float32's
// prices.
struct MeasuredCosts {
  attention::CostModel model;
  bool complete = true;  // the budget sufficed, and nothing failed
};
MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget);

}  // namespace castor
