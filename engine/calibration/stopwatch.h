// Measures how long the device takes for an attention problem of given lengths.
//
// Engine thread only, while the device is idle.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/device/device.h"

namespace castor {

// One problem to time.
struct Trial {
  static constexpr int64_t kHeads = 8;
  static constexpr int64_t kDim = 64;  // the common one

  Kernel kernel;
  int64_t dim;
  std::vector<int32_t> queries;  // per sequence
  std::vector<int32_t> keys;
  int64_t heads = kHeads;
  int64_t surrogates = 0;  // Cast
  int64_t value_dim = 0;   // 0: dim

  attention::Spec spec(DType dtype) const;
};

// Offsets of sequences' first tokens, and the total.
std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths);

// Fills the buffer with numbers of either sign between 1/2 and 1, in any floating dtype. They form
// no clusters, so Lloyd's iterations end late, as in the worst case.
void FillRandomly(DType dtype, HostBuffer& buffer);

// A request's tensors were just written by another thread. So here another thread writes the inputs
// before each run, and no run finds its inputs and outputs where the run before left them.
class Stopwatch {
 public:
  // `device` must outlive this object, which stops measuring when `budget` is spent.
  Stopwatch(Device& device, std::chrono::microseconds budget);

  // The shortest compute time of a few runs, in microseconds; nullopt when the device cannot run
  // the trial, or no time is left for it.
  std::optional<double> Time(const Trial& trial, DType dtype);

  // The compute time of one run, likewise.
  std::optional<double> TimeOnce(const Trial& trial, DType dtype);

 private:
  using Clock = std::chrono::steady_clock;
  struct Staged {
    size_t query_bytes = 0;
    size_t key_bytes = 0;
    size_t value_bytes = 0;
    size_t output_bytes = 0;
    size_t surrogate_bytes = 0;
    std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
    AttentionBatch batch;

    size_t input_bytes() const { return query_bytes + key_bytes + value_bytes + surrogate_bytes; }
  };

  // What trials of one dtype read.
  struct Inputs {
    HostBuffer source;  // as long as `memory`, whose parts are copies of its beginning
    HostBuffer memory;
    size_t next = 0;  // bytes
  };

  bool over() const { return Clock::now() >= end_; }
  bool Stage(const Trial& trial, DType dtype, Staged* staged);
  bool GrowInputs(DType dtype, size_t bytes);
  void MoveOn(Staged* staged);
  bool GrowOutputs(size_t bytes);
  bool GrowGate(size_t tokens);
  bool Grow(size_t bytes, HostBuffer* buffer);
  std::optional<double> Run(const AttentionBatch& batch);

  Device& device_;
  const std::shared_ptr<HostPool> pool_;
  const Clock::time_point end_;
  std::map<DType, Inputs> inputs_;
  HostBuffer outputs_;
  size_t next_output_ = 0;  // bytes
  uint64_t seed_ = 0;       // of hash planes
  HostBuffer gate_;
};

}  // namespace castor
