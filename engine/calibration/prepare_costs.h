// The automatic kernel's cost model at startup: read from its file, or measured.
//
// Engine thread only, before the first request.
#pragma once

#include "engine/attention/cost/cost_model.h"
#include "engine/device/device.h"
#include "engine/engine.h"

namespace castor {

struct PreparedCosts {
  attention::CostModel model;
  CostModelInfo info;
};

// Reads or measures the cost model as EngineOptions says. Never fails: without a model the
// automatic kernel is the most exact one, and the info gives the reason. A device without
// approximate kernels has nothing to choose, so nothing is read or measured.
PreparedCosts PrepareCosts(Device& device, const EngineOptions& options);

}  // namespace castor
