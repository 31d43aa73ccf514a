#include "engine/calibration/stopwatch.h"

#include <algorithm>
#include <cstring>
#include <thread>
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
  spec.heads = heads;
  spec.head_dim = dim;
  spec.value_dim = value_dim > 0 ? value_dim : dim;
  spec.softmax_scale = 0.125;
  spec.kernel = kernel;
  spec.surrogates = surrogates;
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
  constexpr int kRuns = 2;
  constexpr double kEnoughUs = 4'000;
  Staged staged;
  if (over() || !Stage(trial, dtype, &staged)) return std::nullopt;
  std::optional<double> least;
  for (int run = 0; run < kRuns && (run == 0 || !over()); ++run) {
    if (run == kRuns - 1 && *least * run > kEnoughUs) break;
    MoveOn(&staged);
    const std::optional<double> us = Run(staged.batch);
    if (!us) return std::nullopt;
    least = std::min(least.value_or(*us), *us);
  }
  return least;
}

std::optional<double> Stopwatch::TimeOnce(const Trial& trial, DType dtype) {
  Staged staged;
  if (over() || !Stage(trial, dtype, &staged)) return std::nullopt;
  MoveOn(&staged);
  return Run(staged.batch);
}

bool Stopwatch::Stage(const Trial& trial, DType dtype, Staged* staged) {
  staged->cu_seqlens_q = OffsetsOf(trial.queries);
  staged->cu_seqlens_k = OffsetsOf(trial.keys);
  const attention::Spec spec = trial.spec(dtype);
  const int64_t row = spec.heads * spec.head_dim;
  const int64_t value_row = spec.heads * spec.value_dim;
  const auto bytes_of = [&](int64_t rows, int64_t of) {  // aligned, as staging is
    return (static_cast<size_t>(rows * of) * SizeOf(dtype) + 63) / 64 * 64;
  };
  staged->query_bytes = bytes_of(staged->cu_seqlens_q.back(), row);
  staged->key_bytes = bytes_of(staged->cu_seqlens_k.back(), row);
  staged->value_bytes = bytes_of(staged->cu_seqlens_k.back(), value_row);
  staged->output_bytes = bytes_of(staged->cu_seqlens_q.back(), value_row);
  staged->surrogate_bytes = bytes_of(trial.surrogates, row);
  if (!GrowInputs(dtype, staged->input_bytes()) || !GrowOutputs(staged->output_bytes) ||
      (trial.surrogates > 0 && !GrowGate(static_cast<size_t>(staged->cu_seqlens_q.back())))) {
    return false;
  }
  attention::Problem problem;
  problem.query_stride = problem.key_stride = row;
  problem.value_stride = problem.output_stride = value_row;
  problem.cu_seqlens_q = staged->cu_seqlens_q;
  problem.cu_seqlens_k = staged->cu_seqlens_k;
  staged->batch = {spec, {problem}};
  return true;
}

void Stopwatch::MoveOn(Staged* staged) {
  Inputs& inputs = inputs_[staged->batch.spec.dtype];
  if (inputs.next + staged->input_bytes() > inputs.memory.size()) inputs.next = 0;
  if (next_output_ + staged->output_bytes > outputs_.size()) next_output_ = 0;
  attention::Problem& problem = staged->batch.requests.front();
  problem.query = inputs.memory.data() + inputs.next;
  problem.key = problem.query + staged->query_bytes;
  problem.value = problem.key + staged->key_bytes;
  problem.output = outputs_.data() + next_output_;
  if (staged->surrogate_bytes > 0) {
    problem.cast.surrogates = problem.value + staged->value_bytes;
    problem.cast.gate = gate_.as<float>();
  }
  const size_t at = inputs.next;
  inputs.next += staged->input_bytes();
  next_output_ += staged->output_bytes;

  // Or the planes of the run before would be used again.
  attention::Spec& spec = staged->batch.spec;
  ++seed_;
  if (auto* clustered = std::get_if<Clustered>(&spec.kernel)) clustered->seed = seed_;
  if (auto* improved = std::get_if<ImprovedClustered>(&spec.kernel)) improved->seed = seed_;

  // As staging does.
  std::thread([&] {
    std::memcpy(inputs.memory.data() + at, inputs.source.data(), staged->input_bytes());
  }).join();
}

// All trials read the same numbers: generating them takes longer than some trials.
bool Stopwatch::GrowInputs(DType dtype, size_t bytes) {
  Inputs& inputs = inputs_[dtype];
  if (inputs.memory.size() > 0 && inputs.memory.size() >= bytes) return true;
  if (!Grow(bytes, &inputs.source)) return false;
  FillRandomly(dtype, inputs.source);
  inputs.next = 0;
  return Grow(bytes, &inputs.memory);
}

bool Stopwatch::GrowOutputs(size_t bytes) {
  if (outputs_.size() >= bytes) return true;
  if (!Grow(bytes, &outputs_)) return false;
  std::memset(outputs_.data(), 0, outputs_.size());  // maps its pages
  next_output_ = 0;
  return true;
}

bool Stopwatch::GrowGate(size_t tokens) {
  if (gate_.size() >= tokens * sizeof(float)) return true;
  auto buffer = pool_->Allocate(tokens * sizeof(float));
  if (!buffer.ok()) return false;
  gate_ = *std::move(buffer);
  FillRandomly(DType::kFloat32, gate_);
  return true;
}

// Room for several runs, so that each has other memory.
bool Stopwatch::Grow(size_t bytes, HostBuffer* buffer) {
  constexpr size_t kLeast = size_t{16} << 20;
  auto larger = pool_->Allocate(std::max(bytes, kLeast));
  if (!larger.ok()) return false;
  *buffer = *std::move(larger);
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
