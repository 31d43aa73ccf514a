// The automatic kernel's cost model, when an engine starts: read from its file, or measured.
//
// Engine thread only, before the first request.
#pragma once

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

}  // namespace castor
