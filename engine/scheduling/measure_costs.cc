#include "engine/scheduling/measure_costs.h"

#include <algorithm>
#include <optional>
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

bool IsWork(size_t term) {
  return term != static_cast<size_t>(attention::CostTerm::kLaunch) &&
         term != static_cast<size_t>(attention::CostTerm::kSequences);
}

attention::CostTerms TermsOf(const Trial& trial) {
  return attention::CostTermsOf(SpecOf(trial.kernel, DType::kFloat32, trial.dim),
                                Offsets(trial.queries), Offsets(trial.keys));
}

// Numbers of either sign between 1/2 and 1, in any dtype, by their bits. Nothing is clustered in
// them, so Lloyd's iterations end late, as they do at worst.
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

// Of the trials, the one of a single sequence of common parameters.
constexpr size_t kCommonTrial = 2;

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
            {kernel, kDim, {4 * n}, {4 * n}}};
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

  // The least compute time of a few runs, in microseconds; nullopt when the device cannot run the
  // trial, or there is no time left for it.
  std::optional<double> Time(const Trial& trial, DType dtype) {
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

 private:
  struct Staged {
    HostBuffer output;
    std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
    AttentionBatch batch;
  };

  bool Stage(const Trial& trial, DType dtype, Staged* staged) {
    staged->cu_seqlens_q = Offsets(trial.queries);
    staged->cu_seqlens_k = Offsets(trial.keys);
    const int64_t row = kHeads * trial.dim;
    const size_t row_bytes = static_cast<size_t>(row) * SizeOf(dtype);  // a multiple of 64
    const size_t query_bytes = static_cast<size_t>(staged->cu_seqlens_q.back()) * row_bytes;
    const size_t key_bytes = static_cast<size_t>(staged->cu_seqlens_k.back()) * row_bytes;
    auto output = pool_->Allocate(query_bytes);
    if (!output.ok() || !GrowInputs(dtype, query_bytes + 2 * key_bytes)) return false;
    staged->output = *std::move(output);
    Problem problem;
    problem.query = inputs_.data();
    problem.key = problem.query + query_bytes;
    problem.value = problem.key + key_bytes;
    problem.output = staged->output.data();
    problem.query_stride = problem.key_stride = row;
    problem.value_stride = problem.output_stride = row;
    problem.cu_seqlens_q = staged->cu_seqlens_q;
    problem.cu_seqlens_k = staged->cu_seqlens_k;
    staged->batch = {SpecOf(trial.kernel, dtype, trial.dim), {problem}};
    return true;
  }

  // All trials read the same numbers: making them takes longer than some trials do.
  bool GrowInputs(DType dtype, size_t bytes) {
    if (dtype == inputs_dtype_ && inputs_.size() >= bytes) return true;
    auto buffer = pool_->Allocate(bytes);
    if (!buffer.ok()) return false;
    inputs_ = *std::move(buffer);
    inputs_dtype_ = dtype;
    FillRandomly(dtype, inputs_);
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
  HostBuffer inputs_;
  DType inputs_dtype_ = DType::kFloat32;
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

// Of the trials that ran, in float32.
std::vector<CostSample> TakeSamples(Stopwatch& stopwatch, const std::vector<Trial>& trials) {
  std::vector<CostSample> samples;
  for (const Trial& trial : trials) {
    const std::optional<double> us = stopwatch.Time(trial, DType::kFloat32);
    if (us) samples.push_back({TermsOf(trial), *us});
  }
  return samples;
}

// The prices with which the trial takes `us`: in proportion, but for what the dtype has no part in.
attention::CostTerms Scaled(const attention::CostTerms& prices, const Trial& trial, double us) {
  const attention::CostTerms terms = TermsOf(trial);
  double fixed = 0;
  double work = 0;
  for (size_t t = 0; t < attention::kCostTerms; ++t) {
    (IsWork(t) ? work : fixed) += terms[t] * prices[t];
  }
  attention::CostTerms scaled = prices;
  if (work == 0) return scaled;
  // A run that beats the fixed part alone was measured badly; half is then a cautious guess.
  const double factor = std::max(0.5, (us - fixed) / work);
  for (size_t t = 0; t < attention::kCostTerms; ++t) {
    if (IsWork(t)) scaled[t] *= factor;
  }
  return scaled;
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
  if (!measured.complete) info.note = "the time did not suffice for every kernel, or one failed";
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
  constexpr KernelName kKernels[] = {KernelName::kVanilla, KernelName::kClustered,
                                     KernelName::kImprovedClustered};
  Stopwatch stopwatch(device, budget);
  const int32_t n = TrialLength(stopwatch);
  MeasuredCosts measured;
  const auto runs = [&](const Trial& trial, DType dtype) {
    const Spec spec = SpecOf(trial.kernel, dtype, trial.dim);
    return attention::FindVariant(device.variants(), spec) != nullptr;
  };
  for (const KernelName name : kKernels) {
    const std::vector<Trial> trials = TrialsOf(name, n);
    if (!runs(trials.front(), DType::kFloat32)) continue;
    const std::vector<CostSample> samples = TakeSamples(stopwatch, trials);
    if (samples.size() == trials.size()) {
      measured.model.Set(name, DType::kFloat32, attention::FitCosts(samples));
    } else {
      measured.complete = false;
    }
  }
  // The other types do the same work in another time: one trial tells the proportion.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const KernelName name : kKernels) {
      const auto known = measured.model.prices().find({name, DType::kFloat32});
      const Trial trial = TrialsOf(name, n)[kCommonTrial];
      if (known == measured.model.prices().end() || !runs(trial, dtype)) continue;
      const attention::CostTerms prices = known->second;
      const std::optional<double> us = stopwatch.Time(trial, dtype);
      measured.complete = measured.complete && us.has_value();
      measured.model.Set(name, dtype, us ? Scaled(prices, trial, *us) : prices);
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
