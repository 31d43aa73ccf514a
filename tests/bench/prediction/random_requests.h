// Random attention requests of every kernel: dtypes, heads, dimensions, ragged lengths, parameters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/base/dtype.h"
#include "engine/base/host_memory.h"
#include "engine/forecast/calibration.h"
#include "engine/kernel_table.h"
#include "engine/request.h"
#include "tests/bench/command_line.h"
#include "tests/support/attention/spec.h"

namespace castor::bench {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int64_t Uniform(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  // Log-uniform: as many between 10 and 20 as between 100 and 200.
  int64_t Spread(int64_t least, int64_t most) {
    const double log = std::uniform_real_distribution<double>(
        std::log(static_cast<double>(least)), std::log(static_cast<double>(most) + 1))(engine_);
    return std::clamp(static_cast<int64_t>(std::exp(log)), least, most);
  }
  bool Chance(double share) { return std::bernoulli_distribution(share)(engine_); }

  // Ragged lengths that add up to about `tokens`.
  std::vector<int64_t> Lengths(int64_t sequences, int64_t tokens) {
    std::vector<int64_t> lengths;
    for (int64_t s = 0; s < sequences; ++s) {
      lengths.push_back(Uniform(1, std::max<int64_t>(1, 2 * tokens / sequences)));
    }
    return lengths;
  }

 private:
  std::mt19937 engine_;
};

inline int64_t Sum(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return sum;
}

// Random requests of one kernel, over memory that all of a dtype share.
class Requests {
 public:
  Requests(Random& random, HostPool& pool) : random_(random) {
    for (const DType dtype : kFloatingDTypes) {
      // The largest: 16384 tokens of 16 heads of 256.
      auto memory = pool.Allocate(size_t{16384} * 16 * 256 * SizeOf(dtype));
      if (!memory.ok()) Die(memory.status().ToString());
      FillRandomly(dtype, *memory);
      memory_[dtype] = *std::move(memory);
    }
    // Outputs need no fresh pages, as in an engine that has run for a while.
    for (size_t bytes = size_t{1} << 16; bytes < size_t{96} << 20; bytes += bytes / 6) {
      if (auto block = pool.Allocate(bytes); block.ok()) std::memset(block->data(), 0, bytes);
    }
  }

  AttentionRequest Make(KernelName kernel) {
    constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16,
                                 DType::kFloat16};
    const DType dtype = kDTypes[random_.Uniform(0, 3)];
    const int64_t heads = random_.Uniform(1, 16);
    const int64_t dim = Dim();
    const int64_t value_dim = random_.Chance(0.7) || kernel == KernelName::kCast ? dim : Dim();
    const int64_t sequences = random_.Chance(0.5) ? 1 : random_.Spread(1, 64);
    AttentionRequest request;
    request.query_lengths = random_.Lengths(sequences, random_.Spread(16, 8192));
    request.kernel = Parameters(kernel);
    int64_t keys = Sum(request.query_lengths);
    if (kernel != KernelName::kCast && random_.Chance(0.3)) {
      request.key_lengths = random_.Lengths(sequences, random_.Spread(16, 8192));
      keys = Sum(request.key_lengths);
      if (auto* vanilla = std::get_if<Vanilla>(&request.kernel)) vanilla->causal = false;
    }
    request.query = Tensor(dtype, {Sum(request.query_lengths), heads, dim});
    request.key = Tensor(dtype, {keys, heads, dim});
    request.value = Tensor(dtype, {keys, heads, value_dim});
    if (auto* cast = std::get_if<Cast>(&request.kernel)) {
      cast->surrogates = Tensor(dtype, {random_.Spread(2, 64), heads, dim});
      cast->gate = GateOf(keys);
    }
    return request;
  }

 private:
  int64_t Dim() {
    constexpr int64_t kUsual[] = {16, 32, 64, 64, 128, 256};
    return random_.Chance(0.5) ? kUsual[random_.Uniform(0, 5)] : random_.Uniform(1, 256);
  }

  Kernel Parameters(KernelName name) {
    if (name == KernelName::kVanilla) return Vanilla{.causal = random_.Chance(0.3)};
    if (name == KernelName::kCast) {
      Cast cast = attention::CastReading(static_cast<int>(random_.Uniform(0, 15)));
      if (random_.Chance(0.5)) cast.clustering = Cast::Clustering::kTopK;
      return cast;
    }
    ImprovedClustered improved;
    if (random_.Chance(0.5)) improved.clusters = static_cast<int32_t>(random_.Spread(10, 400));
    if (random_.Chance(0.5)) improved.topk = static_cast<int32_t>(random_.Spread(4, 128));
    if (random_.Chance(0.3)) improved.iterations = static_cast<int32_t>(random_.Uniform(1, 15));
    if (name == KernelName::kImprovedClustered && random_.Chance(0.4)) {
      improved = attention::WithOptionsBeyondThePaper(improved);
      improved.iterations = static_cast<int32_t>(random_.Uniform(1, 3));
    }
    if (name == KernelName::kImprovedClustered) return improved;
    return static_cast<const Clustered&>(improved);
  }

  TensorInput Tensor(DType dtype, std::vector<int64_t> shape) const {
    size_t bytes = SizeOf(dtype);
    for (const int64_t n : shape) bytes *= static_cast<size_t>(n);
    return {dtype, std::move(shape), {memory_.at(dtype).bytes().first(bytes)}};
  }

  TensorInput GateOf(int64_t tokens) {
    gate_.resize(static_cast<size_t>(tokens), 0.5f);
    return {DType::kFloat32,
            {tokens},
            {std::as_bytes(std::span(gate_)).first(static_cast<size_t>(tokens) * sizeof(float))}};
  }

  Random& random_;
  std::map<DType, HostBuffer> memory_;
  std::vector<float> gate_;
};

}  // namespace castor::bench
