// Measures how long the device takes for an attention problem of given lengths.
//
// Engine thread only, while the device is idle.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/device/device.h"

namespace castor {

// One problem to time: 8 heads of `dim`.
struct Trial {
  static constexpr int64_t kHeads = 8;
  static constexpr int64_t kDim = 64;  // the common one

  Kernel kernel;
  int64_t dim;
  std::vector<int32_t> queries;  // per sequence
  std::vector<int32_t> keys;

  attention::Spec spec(DType dtype) const;
};

// Offsets of sequences' first tokens, and the total.
std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths);

// Fills the buffer with numbers of either sign between 1/2 and 1, in any floating dtype. They form
// no clusters, so Lloyd's iterations end late, as in the worst case.
void FillRandomly(DType dtype, HostBuffer& buffer);

class Stopwatch {
 public:
  // `device` must outlive this object, which stops measuring when `budget` is spent.
  Stopwatch(Device& device, std::chrono::microseconds budget);

  // The shortest compute time of a few runs, in microseconds; nullopt when the device cannot run
  // the trial, or no time is left for it.
  std::optional<double> Time(const Trial& trial, DType dtype);

 private:
  using Clock = std::chrono::steady_clock;
  struct Staged {
    HostBuffer output;
    std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
    AttentionBatch batch;
  };

  bool over() const { return Clock::now() >= end_; }
  bool Stage(const Trial& trial, DType dtype, Staged* staged);
  bool GrowInputs(DType dtype, size_t bytes);
  std::optional<double> Run(const AttentionBatch& batch);

  Device& device_;
  const std::shared_ptr<HostPool> pool_;
  const Clock::time_point end_;
  HostBuffer inputs_;
  DType inputs_dtype_ = DType::kFloat32;
};

}  // namespace castor
