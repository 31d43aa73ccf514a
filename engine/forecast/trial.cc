#include "engine/forecast/trial.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "engine/base/guarded.h"
#include "engine/requests/staging.h"

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

template <typename Batch>
absl::StatusOr<double> RunBatch(Device& device, const Batch& batch) {
  return Guarded([&]() -> absl::StatusOr<double> {
    auto execution = device.Launch(batch, RunToEnd());
    if (!execution.ok()) return execution.status();
    const auto times = (*execution)->Wait();
    if (!times.ok()) return times.status();
    return times->compute_us;
  });
}

absl::StatusOr<double> RunAlone(Device& device, const AttentionWork& work) {
  return RunBatch(device, AttentionBatch{work.resolved.spec, {work.problem}});
}

absl::StatusOr<double> RunAlone(Device& device, const EncodeWork& work) {
  return RunBatch(device, encoder::Batch{work.model->encoder, work.kernel, work.items()});
}

// All trials read the same numbers: generating them takes longer than some trials.
absl::Status TrialRunner::Grow(DType dtype, int64_t elements) {
  constexpr size_t kLeast = size_t{8} << 20;  // bytes
  const size_t bytes = static_cast<size_t>(elements) * SizeOf(dtype);
  HostBuffer& numbers = numbers_[dtype];
  if (numbers.size() >= bytes && numbers.size() > 0) return absl::OkStatus();
  auto memory = pool_->Allocate(std::max(bytes, kLeast));
  if (!memory.ok()) return memory.status();
  numbers = *std::move(memory);
  FillRandomly(dtype, numbers);
  return absl::OkStatus();
}

absl::StatusOr<AttentionRequest> TrialRunner::RequestOf(const Trial& trial, DType dtype) {
  const auto sum = [](const std::vector<int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  };
  const int64_t queries = sum(trial.queries);
  const int64_t keys = sum(trial.keys);
  const int64_t most = std::max({queries, keys, trial.surrogates});
  if (auto status = Grow(dtype, most * trial.heads * trial.dim); !status.ok()) return status;
  if (auto status = Grow(DType::kFloat32, keys); !status.ok()) return status;
  const auto tensor = [&](DType type, std::vector<int64_t> shape) {
    size_t bytes = SizeOf(type);
    for (const int64_t n : shape) bytes *= static_cast<size_t>(n);
    return TensorInput{type, std::move(shape), {numbers_[type].bytes().first(bytes)}};
  };
  AttentionRequest request;
  request.query = tensor(dtype, {queries, trial.heads, trial.dim});
  request.key = request.value = tensor(dtype, {keys, trial.heads, trial.dim});
  request.query_lengths = trial.queries;
  if (trial.keys != trial.queries) request.key_lengths = trial.keys;
  request.kernel = trial.kernel;
  if (auto* const cast = std::get_if<Cast>(&request.kernel)) {
    cast->surrogates = tensor(dtype, {trial.surrogates, trial.heads, trial.dim});
    cast->gate = tensor(DType::kFloat32, {keys});
  }
  // Or the planes of the run before would be used again.
  if (auto* const clustered = std::get_if<Clustered>(&request.kernel)) clustered->seed = ++seed_;
  if (auto* const improved = std::get_if<ImprovedClustered>(&request.kernel)) {
    improved->seed = ++seed_;
  }
  return request;
}

absl::StatusOr<attention::Resolved> TrialRunner::Resolve(const Trial& trial, DType dtype) {
  const auto request = RequestOf(trial, dtype);
  if (!request.ok()) return request.status();
  const auto sequences = static_cast<int64_t>(trial.queries.size());
  return attention::Resolve(*request, device_.variants(), {}, sequences);
}

absl::StatusOr<double> TrialRunner::Run(const Trial& trial, DType dtype) {
  auto resolved = Resolve(trial, dtype);
  if (!resolved.ok()) return resolved.status();
  const auto request = RequestOf(trial, dtype);
  if (!request.ok()) return request.status();
  AttentionWork work;
  work.resolved = *std::move(resolved);
  absl::Status status;
  std::thread([&] {
    status = Guarded([&] { return StageAttention(*request, *pool_, &work); });
  }).join();
  if (!status.ok()) return status;
  return RunAlone(device_, work);
}

}  // namespace castor
