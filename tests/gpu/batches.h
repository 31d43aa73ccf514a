// Random attention batches in a device's own staging memory, and a float64 reference for them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace castor::gpu {

// One request: the lengths of its sequences. Its tensors' contents depend on `seed` alone, so the
// same request can be made on any device and in any batch.
struct RequestShape {
  std::vector<int32_t> query_lengths;
  std::vector<int32_t> key_lengths;
  uint32_t seed = 0;
};

// Owns the memory that its batch points to.
class StagedBatch {
 public:
  StagedBatch(Device& device, const attention::Spec& spec, std::vector<RequestShape> shapes);
  StagedBatch(const StagedBatch&) = delete;
  StagedBatch& operator=(const StagedBatch&) = delete;

  const AttentionBatch& batch() const { return batch_; }

  // Launches, waits, and returns the measured times.
  absl::StatusOr<ExecutionTimes> Run(Device& device) const;

  // The output bytes of one request.
  std::vector<std::byte> Output(size_t request) const;

  // The greatest |log-sum-exp - other's| / max(1, |other's|) of all rows; infinite if one is not
  // finite. Both specs have it.
  double LogSumExpError(const StagedBatch& other) const;

  void ClearOutputs();

  // ||output - exact||_2 / ||exact||_2 over up to `rows` random query rows of each sequence,
  // computed in float64 from the definition; infinite if any element is not finite.
  double RelativeError(int rows, uint32_t seed) const;

 private:
  struct Staged {
    std::vector<int32_t> cu_seqlens_q;
    std::vector<int32_t> cu_seqlens_k;
    HostBuffer query, key, value, output, log_sum_exp;  // the last if the spec has it
  };

  std::vector<Staged> staged_;
  AttentionBatch batch_;
};

}  // namespace castor::gpu
