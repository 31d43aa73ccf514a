// The first runs, while the engine starts. They make threads, code, memory pages and the libraries'
// preparations per shape ready for the first request, and keep models and kernels that cannot run
// from being served. They also give the prices of models, and of attention's kernels unless a file
// has them.
//
// Engine thread only, before the first request.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
#include "engine/requests/work.h"
#include "engine/residents/model_list.h"

namespace castor {

// Runs each model on a few short inputs, as many as its prices need, however long that takes; then
// on further shapes and poolings, for up to `budget` per model. Then runs each kernel in each dtype
// that the device supports, for up to `budget`. An error names the model or kernel that failed.
absl::StatusOr<EncoderPrices> WarmUp(Device& device, const ModelList& models, const Clock& clock,
                                     std::chrono::milliseconds budget);

// Runs a request to a model, and returns the time that it computed, in microseconds.
using RunRequest = std::function<absl::StatusOr<double>(EncodeRequest)>;

// A request of a few tokens, with which to run a model for the first time.
EncodeRequest ShortRequest(const ModelInfo& info);

// Runs texts and further shapes, each twice unless it takes long or `over()`: several ragged
// sequences, enough of them to wake every thread, and shapes that tell the terms of a model's cost
// apart. The faster run of each is a sample. The first shapes run in any case, because admission
// needs the model's prices. Returns those; nullopt if the runs were too few.
absl::StatusOr<std::optional<EncoderCosts>> MeasureModel(const LoadedModel& model, int threads,
                                                         const std::function<bool()>& over,
                                                         const RunRequest& run);

struct PreparedCosts {
  CostModel model;
  CostModelInfo info;
};

// Reads or measures the cost model as EngineOptions says. Never fails: without a model the
// automatic kernel is the most exact one, and the info gives the reason. Does nothing for a device
// without approximate kernels, where there is no choice.
PreparedCosts PrepareCosts(Device& device, const EngineOptions& options);

// Runs each kernel in each dtype a few times on some fifteen problems of about half a millisecond,
// and fits prices to the median of each. Leaves out a kernel that fails, or for which `budget` has
// no time; a dtype for which it has no time gets float32's prices.
struct MeasuredCosts {
  CostModel model;
  bool complete = true;  // the budget sufficed, and nothing failed
};
MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget);

// A made-up attention problem, to run before the first request while the device is idle.
struct Trial {
  static constexpr int64_t kHeads = 8;
  static constexpr int64_t kDim = 64;  // the common one

  Kernel kernel;
  std::vector<int64_t> queries;  // per sequence
  std::vector<int64_t> keys;
  int64_t dim = kDim;
  int64_t heads = kHeads;
  int64_t surrogates = 16;  // for CAST
};

// Fills the buffer with numbers of absolute value between 1/2 and 1, in any floating dtype. They
// form no clusters, so Lloyd's algorithm ends late, as in the worst case.
void FillRandomly(DType dtype, HostBuffer& buffer);

// Runs staged work alone. Returns the time that it computed, in microseconds.
absl::StatusOr<double> RunAlone(Device& device, const AttentionWork& work);
absl::StatusOr<double> RunAlone(Device& device, const EncodeWork& work);

class TrialRunner {
 public:
  // `device` must outlive this object.
  explicit TrialRunner(Device& device) : device_(device), pool_(device.host_pool()) {}

  // The checked problem of the trial; an error if the device cannot run it.
  absl::StatusOr<attention::Resolved> Resolve(const Trial& trial, DType dtype);

  // Runs the trial once, and returns the time that it computed, in microseconds. As in an engine,
  // another thread writes the inputs before; each run draws new hash planes.
  absl::StatusOr<double> Run(const Trial& trial, DType dtype);

 private:
  absl::StatusOr<AttentionRequest> RequestOf(const Trial& trial, DType dtype);
  absl::Status Grow(DType dtype, int64_t elements);

  Device& device_;
  const std::shared_ptr<HostPool> pool_;
  std::map<DType, HostBuffer> numbers_;  // the inputs of all trials
  uint64_t seed_ = 0;                    // for hash planes
};

}  // namespace castor
