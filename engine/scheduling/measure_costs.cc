#include "engine/scheduling/measure_costs.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/automatic.h"
#include "engine/attention/cost_cache.h"
#include "engine/scheduling/guarded.h"

namespace castor {
namespace {

using attention::CostModel;
using attention::CostSample;
using attention::Problem;
using attention::Spec;
using Clock = std::chrono::steady_clock;

constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 64;
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// One problem to time.
struct Trial {
  Kernel kernel;
  int64_t dim;
  std::vector<int32_t> queries;  // per sequence
  std::vector<int32_t> keys;
};

std::vector<int32_t> Offsets(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

Spec SpecOf(const Kernel& kernel, DType dtype, int64_t dim) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = kHeads;
  spec.head_dim = dim;
  spec.value_dim = dim;
  spec.softmax_scale = 0.125;
  spec.kernel = kernel;
  return spec;
}

// Numbers of either sign between 1/2 and 1, in any dtype, by their bits. Nothing is clustered in
// them, so Lloyd's iterations end late, as they do at worst.
void FillRandomly(DType dtype, HostBuffer& buffer, std::minstd_rand& random) {
  for (size_t i = 0; i < buffer.size() / SizeOf(dtype); ++i) {
    const auto bits = static_cast<uint32_t>(random()) << 1;  // the generator has 31
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

// What distinguishes the terms: one short sequence (the launch), many (sequences), other lengths of
// queries and keys (tokens), another dimension (weights), fewer clusters, iterations and top keys.
std::vector<Trial> TrialsOf(KernelName name, int32_t n) {
  const std::vector<int32_t> tiny = {16};
  const std::vector<int32_t> many(16, 16);
  if (name == KernelName::kVanilla) {
    const Vanilla vanilla;
    return {{vanilla, kDim, tiny, tiny},       {vanilla, kDim, many, many},
            {vanilla, kDim, {n}, {n}},         {vanilla, kDim / 2, {n}, {n}},
            {vanilla, kDim, {n / 4}, {4 * n}}, {vanilla, kDim, {n / 2}, {n / 2}}};
  }
  const auto trials = [&](auto kernel) -> std::vector<Trial> {
    auto fewer_clusters = kernel;
    fewer_clusters.clusters = 25;
    auto fewer_iterations = kernel;
    fewer_iterations.iterations = 1;
    return {{kernel, kDim, tiny, tiny},
            {kernel, kDim, many, many},
            {kernel, kDim, {2 * n}, {2 * n}},
            {kernel, kDim / 2, {2 * n}, {2 * n}},
            {fewer_clusters, kDim, {2 * n}, {2 * n}},
            {fewer_iterations, kDim, {2 * n}, {2 * n}},
            {kernel, kDim, {n / 2}, {4 * n}},
            {kernel, kDim, {8 * n}, {8 * n}}};
  };
  if (name == KernelName::kClustered) return trials(Clustered{});
  std::vector<Trial> improved = trials(ImprovedClustered{});
  ImprovedClustered fewer_keys;
  fewer_keys.topk = 8;
  improved.push_back({fewer_keys, kDim, {2 * n}, {2 * n}});
  return improved;
}

class Stopwatch {
 public:
  Stopwatch(Device& device, std::chrono::microseconds budget)
      : device_(device), pool_(device.host_pool()), end_(Clock::now() + budget) {}

  bool over() const { return Clock::now() >= end_; }

  // The least compute time of a few runs, in microseconds, after one that warms up; nullopt when
  // the device cannot run the trial, or there is no time left for it.
  std::optional<double> Time(const Trial& trial, DType dtype) {
    constexpr int kRuns = 3;
    Staged staged;
    if (over() || !Stage(trial, dtype, &staged)) return std::nullopt;
    std::optional<double> least;
    for (int run = 0; run < kRuns && (run == 0 || !over()); ++run) {
      const std::optional<double> us = Run(staged.batch);
      if (!us) return std::nullopt;
      least = std::min(least.value_or(*us), *us);
    }
    return least;
  }

 private:
  struct Staged {
    HostBuffer query, key, value, output;
    std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
    AttentionBatch batch;
  };

  bool Stage(const Trial& trial, DType dtype, Staged* staged) {
    staged->cu_seqlens_q = Offsets(trial.queries);
    staged->cu_seqlens_k = Offsets(trial.keys);
    const int64_t row = kHeads * trial.dim;
    const auto row_bytes = static_cast<size_t>(row) * SizeOf(dtype);
    const auto allocate = [&](int32_t tokens, HostBuffer* out) {
      auto buffer = pool_->Allocate(static_cast<size_t>(tokens) * row_bytes);
      if (!buffer.ok()) return false;
      *out = *std::move(buffer);
      FillRandomly(dtype, *out, random_);
      return true;
    };
    if (!allocate(staged->cu_seqlens_q.back(), &staged->query) ||
        !allocate(staged->cu_seqlens_k.back(), &staged->key) ||
        !allocate(staged->cu_seqlens_k.back(), &staged->value) ||
        !allocate(staged->cu_seqlens_q.back(), &staged->output)) {
      return false;
    }
    Problem problem;
    problem.query = staged->query.data();
    problem.key = staged->key.data();
    problem.value = staged->value.data();
    problem.output = staged->output.data();
    problem.query_stride = problem.key_stride = row;
    problem.value_stride = problem.output_stride = row;
    problem.cu_seqlens_q = staged->cu_seqlens_q;
    problem.cu_seqlens_k = staged->cu_seqlens_k;
    staged->batch = {SpecOf(trial.kernel, dtype, trial.dim), {problem}};
    return true;
  }

  std::optional<double> Run(const AttentionBatch& batch) {
    const auto times = Guarded([&]() -> absl::StatusOr<ExecutionTimes> {
      auto execution = device_.Launch(batch);
      if (!execution.ok()) return execution.status();
      return (*execution)->Wait();
    });
    if (!times.ok() || !(times->compute_us > 0)) return std::nullopt;
    return times->compute_us;
  }

  Device& device_;
  const std::shared_ptr<HostPool> pool_;
  const Clock::time_point end_;
  std::minstd_rand random_;  // the same problems at every start
};

// A sequence's length with which vanilla takes about a millisecond here: long enough to keep the
// device busy, short enough for the budget.
int32_t TrialLength(Stopwatch& stopwatch) {
  constexpr int32_t kLeast = 128;
  constexpr int32_t kMost = 8192;
  constexpr double kEnoughUs = 1000;
  int32_t n = kLeast;
  for (; n < kMost; n *= 2) {
    const auto us = stopwatch.Time({Vanilla{}, kDim, {n}, {n}}, DType::kFloat32);
    if (!us || *us >= kEnoughUs) break;
  }
  return n;
}

// Of the trials that ran.
std::vector<CostSample> TakeSamples(Stopwatch& stopwatch, const std::vector<Trial>& trials,
                                    DType dtype) {
  std::vector<CostSample> samples;
  for (const Trial& trial : trials) {
    const std::optional<double> us = stopwatch.Time(trial, dtype);
    if (!us) continue;
    samples.push_back({attention::CostTermsOf(SpecOf(trial.kernel, dtype, trial.dim),
                                              Offsets(trial.queries), Offsets(trial.keys)),
                       *us});
  }
  return samples;
}

// The device, its libraries and this build, on one line.
std::string CacheKey(const Device& device, const EngineOptions& options) {
  const DeviceInfo& info = device.info();
  std::string key = options.build + "; " + info.name + "; " + info.description + "; " +
                    std::to_string(info.threads) + " threads; " + info.backend;
  std::string_view last;  // neighbouring rows of equal names add nothing
  for (const attention::Variant& row : device.variants()) {
    if (row.backend != last) key += "; " + std::string(row.backend);
    last = row.backend;
  }
  return key;
}

bool HasChoice(const Device& device) {
  const auto variants = device.variants();
  return std::any_of(variants.begin(), variants.end(), [](const attention::Variant& row) {
    return attention::IsApproximate(row.kernel);
  });
}

void AddExamples(const CostModel& model, CostModelInfo* info) {
  const std::vector<int32_t> offsets = {0, 4096};
  for (const Kernel& kernel :
       {Kernel(Vanilla{}), Kernel(Clustered{}), Kernel(ImprovedClustered{})}) {
    const auto us = model.Predict(SpecOf(kernel, DType::kFloat32, kDim), offsets, offsets);
    if (us) info->examples.push_back({NameOf(kernel), *us});
  }
}

void ReadOrMeasure(Device& device, const EngineOptions& options, PreparedCosts* prepared) {
  CostModelInfo& info = prepared->info;
  const std::string key = CacheKey(device, options);
  if (!options.cost_model_cache.empty()) {
    info.file = attention::CostFile(options.cost_model_cache, key);
    auto cached = attention::ReadCosts(info.file, key);
    if (cached.ok() && !cached->empty()) {
      prepared->model = *std::move(cached);
      info.source = CostModelInfo::Source::kCached;
      return;
    }
    if (!absl::IsNotFound(cached.status())) info.note = std::string(cached.status().message());
  }
  MeasuredCosts measured = MeasureCosts(device, options.cost_model_budget);
  prepared->model = std::move(measured.model);
  if (!measured.complete) info.note = "the time for measuring ended before all kernels were done";
  if (prepared->model.empty()) return;
  info.source = CostModelInfo::Source::kMeasured;
  // A part is better than nothing, but not good enough for the next starts.
  if (info.file.empty() || !measured.complete) return;
  if (auto status = attention::WriteCosts(info.file, prepared->model, key); !status.ok()) {
    info.note = std::string(status.message());
  }
}

}  // namespace

MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget) {
  Stopwatch stopwatch(device, budget);
  const int32_t n = TrialLength(stopwatch);
  MeasuredCosts measured;
  CostModel& model = measured.model;
  for (const DType dtype : kDTypes) {
    for (const KernelName name :
         {KernelName::kVanilla, KernelName::kClustered, KernelName::kImprovedClustered}) {
      const std::vector<Trial> trials = TrialsOf(name, n);
      const Spec common = SpecOf(trials.front().kernel, dtype, kDim);
      if (attention::FindVariant(device.variants(), common) == nullptr) continue;
      const std::vector<CostSample> samples = TakeSamples(stopwatch, trials, dtype);
      if (samples.size() == trials.size()) {
        model.Set(name, dtype, attention::FitCosts(samples));
        continue;
      }
      measured.complete = measured.complete && !stopwatch.over();
      const auto known = model.prices().find({name, DType::kFloat32});
      if (known == model.prices().end()) continue;
      const attention::CostTerms prices = known->second;
      model.Set(name, dtype, prices);
    }
  }
  return measured;
}

PreparedCosts PrepareCosts(Device& device, const EngineOptions& options) {
  PreparedCosts prepared;
  if (options.cost_model_budget.count() == 0 || !HasChoice(device)) return prepared;
  const Clock::time_point start = Clock::now();
  // Files and memory: nothing that goes wrong here may keep an engine from starting.
  const absl::Status status = Guarded([&] {
    ReadOrMeasure(device, options, &prepared);
    return absl::OkStatus();
  });
  if (!status.ok()) prepared.info.note = std::string(status.message());
  prepared.info.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  AddExamples(prepared.model, &prepared.info);
  return prepared;
}

}  // namespace castor
