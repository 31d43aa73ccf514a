// The first runs, while the engine starts: so threads, code, memory pages and what libraries
// prepare per shape are ready for the first request, and what cannot run is never served. They also
// tell the prices of models, and of attention's kernels where no file holds them.
//
// Engine thread only, before the first request.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/attention/resolve.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/forecast/cost_model.h"
#include "engine/forecast/encoder_costs.h"
#include "engine/models/models.h"
#include "engine/requests/work.h"

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

// Attention problems that the engine makes up, to run them before the first request.
//
// Engine thread only, while the device is idle.
struct Trial {
  static constexpr int64_t kHeads = 8;
  static constexpr int64_t kDim = 64;  // the common one

  Kernel kernel;
  std::vector<int64_t> queries;  // per sequence
  std::vector<int64_t> keys;
  int64_t dim = kDim;
  int64_t heads = kHeads;
  int64_t surrogates = 16;  // of CAST
};

// Fills the buffer with numbers of either sign between 1/2 and 1, in any floating dtype. They form
// no clusters, so Lloyd's iterations end late, as in the worst case.
void FillRandomly(DType dtype, HostBuffer& buffer);

// Runs what is staged, alone. The time that it computed, in microseconds.
absl::StatusOr<double> RunAlone(Device& device, const AttentionWork& work);
absl::StatusOr<double> RunAlone(Device& device, const EncodeWork& work);

class TrialRunner {
 public:
  // `device` must outlive this object.
  explicit TrialRunner(Device& device) : device_(device), pool_(device.host_pool()) {}

  // What a run of the trial is. An error if the device cannot run it.
  absl::StatusOr<attention::Resolved> Resolve(const Trial& trial, DType dtype);

  // Runs it once, and returns the time that it computed, in microseconds. As in an engine, another
  // thread writes the inputs before; hash planes are drawn anew.
  absl::StatusOr<double> Run(const Trial& trial, DType dtype);

 private:
  absl::StatusOr<AttentionRequest> RequestOf(const Trial& trial, DType dtype);
  absl::Status Grow(DType dtype, int64_t elements);

  Device& device_;
  const std::shared_ptr<HostPool> pool_;
  std::map<DType, HostBuffer> numbers_;  // what all trials read
  uint64_t seed_ = 0;                    // of hash planes
};

}  // namespace castor
