#include "engine/calibration/stopwatch.h"

#include <algorithm>
#include <utility>

#include "engine/base/guarded.h"

namespace castor {

void FillRandomly(DType dtype, HostBuffer& buffer) {
  uint32_t bits = 1;  // a linear congruential generator, whose high bits are good enough here
  for (size_t i = 0; i < buffer.size() / SizeOf(dtype); ++i) {
    bits = bits * 1664525 + 1013904223;
    switch (dtype) {
      case DType::kFloat16:
        buffer.as<uint16_t>()[i] = static_cast<uint16_t>(((bits >> 16) & 0x83ff) | 0x3800);
        break;
      case DType::kBFloat16:
        buffer.as<uint16_t>()[i] = static_cast<uint16_t>(((bits >> 16) & 0x807f) | 0x3f00);
        break;
      default:
        buffer.as<uint32_t>()[i] = (bits & 0x807fffff) | 0x3f000000;
    }
  }
}

attention::Spec Trial::spec(DType dtype) const {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = kHeads;
  spec.head_dim = dim;
  spec.value_dim = dim;
  spec.softmax_scale = 0.125;
  spec.kernel = kernel;
  return spec;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

Stopwatch::Stopwatch(Device& device, std::chrono::microseconds budget)
    : device_(device), pool_(device.host_pool()), end_(Clock::now() + budget) {}

std::optional<double> Stopwatch::Time(const Trial& trial, DType dtype) {
  constexpr int kRuns = 3;
  constexpr double kEnoughUs = 10'000;
  Staged staged;
  if (over() || !Stage(trial, dtype, &staged)) return std::nullopt;
  std::optional<double> least;
  for (int run = 0; run < kRuns && (run == 0 || !over()); ++run) {
    if (run == kRuns - 1 && *least * run > kEnoughUs) break;
    const std::optional<double> us = Run(staged.batch);
    if (!us) return std::nullopt;
    least = std::min(least.value_or(*us), *us);
  }
  return least;
}

bool Stopwatch::Stage(const Trial& trial, DType dtype, Staged* staged) {
  staged->cu_seqlens_q = OffsetsOf(trial.queries);
  staged->cu_seqlens_k = OffsetsOf(trial.keys);
  const int64_t row = Trial::kHeads * trial.dim;
  const size_t row_bytes = static_cast<size_t>(row) * SizeOf(dtype);  // a multiple of 64
  const size_t query_bytes = static_cast<size_t>(staged->cu_seqlens_q.back()) * row_bytes;
  const size_t key_bytes = static_cast<size_t>(staged->cu_seqlens_k.back()) * row_bytes;
  auto output = pool_->Allocate(query_bytes);
  if (!output.ok() || !GrowInputs(dtype, query_bytes + 2 * key_bytes)) return false;
  staged->output = *std::move(output);
  attention::Problem problem;
  problem.query = inputs_.data();
  problem.key = problem.query + query_bytes;
  problem.value = problem.key + key_bytes;
  problem.output = staged->output.data();
  problem.query_stride = problem.key_stride = row;
  problem.value_stride = problem.output_stride = row;
  problem.cu_seqlens_q = staged->cu_seqlens_q;
  problem.cu_seqlens_k = staged->cu_seqlens_k;
  staged->batch = {trial.spec(dtype), {problem}};
  return true;
}

// All trials read the same numbers: generating them takes longer than some trials.
bool Stopwatch::GrowInputs(DType dtype, size_t bytes) {
  if (dtype == inputs_dtype_ && inputs_.size() >= bytes) return true;
  auto buffer = pool_->Allocate(bytes);
  if (!buffer.ok()) return false;
  inputs_ = *std::move(buffer);
  inputs_dtype_ = dtype;
  FillRandomly(dtype, inputs_);
  return true;
}

std::optional<double> Stopwatch::Run(const AttentionBatch& batch) {
  const auto times = Guarded([&]() -> absl::StatusOr<ExecutionTimes> {
    auto execution = device_.Launch(batch, RunToEnd());
    if (!execution.ok()) return execution.status();
    return (*execution)->Wait();
  });
  if (!times.ok() || !(times->compute_us > 0)) return std::nullopt;
  return times->compute_us;
}

}  // namespace castor
