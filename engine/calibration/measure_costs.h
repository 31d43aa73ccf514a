// The cost model, measured on the idle device by short runs of each kernel.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "engine/attention/cost/cost_model.h"
#include "engine/device/device.h"

namespace castor {

// Measures what a second thread adds. Then runs the kernels in float32, on problems that separate
// the terms of their cost, and fits the prices. Another dtype's prices are float32's times three
// factors, of what is fixed, of moving rows and of computing. The problems are sized so that
// vanilla takes about a millisecond. A kernel that fails, or that `budget` does not reach, is left
// out; a dtype that it does not reach gets float32's prices. With what is left of the budget it
// runs all of them again in the mix of random problems, and fits every kernel and dtype to that.
struct MeasuredCosts {
  attention::CostModel model;
  bool complete = true;  // the budget sufficed, and nothing failed
};
MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget);

}  // namespace castor
