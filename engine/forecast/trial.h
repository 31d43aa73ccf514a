// Attention problems that the engine makes up, to run them before the first request.
//
// Engine thread only, while the device is idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/attention/resolve.h"
#include "engine/device/device.h"
#include "engine/requests/work.h"

namespace castor {

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
