#include "engine/forecast/calibration.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/automatic/candidates.h"
#include "engine/base/guarded.h"
#include "engine/forecast/cost_model.h"
#include "engine/kernel_table.h"
#include "engine/requests/staging.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

using Lengths = std::vector<int64_t>;
const Lengths kTiny = {16};
const Lengths kMany(16, 16);

// The kernel with other parameters, which shift its work from one term to another.
std::vector<Kernel> Variations(const Kernel& kernel, int64_t n) {
  std::vector<Kernel> variations;
  const auto add = [&](auto changed, auto&& change) {
    change(changed);
    variations.emplace_back(std::move(changed));
  };
  if (const auto* vanilla = std::get_if<Vanilla>(&kernel)) {
    add(*vanilla, [](Vanilla& v) { v.causal = true; });
  } else if (const auto* clustered = std::get_if<Clustered>(&kernel)) {
    add(*clustered, [](Clustered& c) { c.clusters = 25; });
    add(*clustered, [](Clustered& c) { c.iterations = 1; });
    add(*clustered, [](Clustered& c) { c.bits = 16; });
  } else if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) {
    add(*improved, [](ImprovedClustered& c) { c.clusters = 25; });
    add(*improved, [](ImprovedClustered& c) { c.iterations = 1; });
    add(*improved, [](ImprovedClustered& c) { c.topk = 8; });
    add(*improved, [](ImprovedClustered& c) { c.topk = 96; });
    variations.emplace_back(attention::WithOptionsBeyondThePaper(*improved));
  } else if (const auto* cast = std::get_if<Cast>(&kernel)) {
    add(*cast, [&](Cast& c) { c.cluster_size = static_cast<int32_t>(n / 4); });
    add(*cast, [](Cast& c) { c.clustering = Cast::Clustering::kSingleAssignmentTopK; });
    add(*cast, [](Cast& c) { c.attention_function = Cast::AttentionFunction::kLaplace; });
    add(*cast, [](Cast& c) { c.head_clustering = Cast::HeadClustering::kPerHead; });
  }
  return variations;
}

// Problems in which one term or another dominates. `n`: a length of TrialLength.
std::vector<Trial> TrialsOf(KernelName name, int64_t n) {
  const Kernel kernel = DefaultKernel(name);
  const bool vanilla = name == KernelName::kVanilla;
  if (!vanilla) n *= 2;  // the work of other kernels grows slower
  constexpr int64_t kDim = Trial::kDim;
  std::vector<Trial> trials = {
      {kernel, kTiny, kTiny},  // the launch
      {kernel, kMany, kMany},  // tasks
      {kernel, {n}, {n}},      // the common problem
      {kernel, {n / 2, n / 8, n / 4}, {n / 2, n / 8, n / 4}, kDim / 2},
      {kernel, {n}, {n}, 8},                    // weights
      {kernel, {n / 2}, {n / 2}, 4 * kDim, 2},  // scores
      {kernel, {n}, {n}, 28},                   // rows that are not whole vectors
      {kernel, {n}, {n}, kDim, 1},              // one head for all threads
  };
  if (name == KernelName::kCast) {
    trials.push_back({kernel, {n / 2}, {n / 2}, kDim, Trial::kHeads, 64});
    trials.push_back({kernel, {n / 2}, {n / 2}, kDim, Trial::kHeads, 4});
  } else {
    trials.push_back({kernel, {n / 4}, {2 * n}});
    trials.push_back({kernel, {2 * n}, {n / 8}});
    trials.push_back({kernel, kTiny, {4 * n}});  // bytes
  }
  for (const Kernel& variation : Variations(kernel, n)) trials.push_back({variation, {n}, {n}});
  return trials;
}

// The length at which vanilla takes about half a millisecond, found by doubling: enough to keep the
// device busy, and short enough for the budget.
int64_t TrialLength(TrialRunner& runner, steady_clock::time_point until) {
  constexpr int64_t kMin = 128;
  constexpr int64_t kMax = 8192;
  constexpr double kEnoughUs = 400;
  int64_t n = kMin;
  for (; n < kMax && steady_clock::now() < until; n *= 2) {
    const Trial trial = {Vanilla{}, {n}, {n}};
    runner.Run(trial, DType::kFloat32).IgnoreError();  // cold
    const auto us = runner.Run(trial, DType::kFloat32);
    if (!us.ok() || *us >= kEnoughUs) break;
  }
  return n;
}

// A kernel in a dtype, with its trials.
struct Measured {
  struct Runs {
    Trial trial;
    CostTerms terms;
    std::vector<double> us = {};
  };

  KernelName kernel;
  DType dtype;
  std::vector<Runs> trials = {};

  // Empty if a trial did not run.
  std::vector<CostSample> Samples() const {
    std::vector<CostSample> samples;
    for (const auto& [trial, terms, runs] : trials) {
      if (runs.empty()) return {};
      std::vector<double> us = runs;
      std::sort(us.begin(), us.end());
      samples.push_back({terms, us[us.size() / 2]});
    }
    return samples;
  }
};

std::vector<Measured> ServedTrials(TrialRunner& runner, int64_t n, const Device& device) {
  std::vector<Measured> all;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const KernelRow& row : kKernels) {
      Measured of = {row.name, dtype};
      for (Trial& trial : TrialsOf(row.name, n)) {
        const auto resolved = runner.Resolve(trial, dtype);
        if (!resolved.ok()) continue;  // not served
        of.trials.push_back(
            {std::move(trial), CostTermsOf(resolved->spec, resolved->cu_seqlens_q,
                                           resolved->cu_seqlens_k, device.info().threads)});
      }
      if (!of.trials.empty()) all.push_back(std::move(of));
    }
  }
  return all;
}

// The conditions under which a model is valid, on one line: the kind of device, its libraries, its
// kernels and this build. Identical devices have the same key.
std::string CostKey(const Device& device, const EngineOptions& options) {
  const DeviceInfo& info = device.info();
  std::string key = options.build + "; " + info.description + "; " + std::to_string(info.threads) +
                    " threads; " + info.backend;
  std::string_view last;  // adjacent rows with the same name count once
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
  attention::Spec spec = {.heads = 8, .head_dim = 64, .value_dim = 64, .kv_heads = 8};
  for (const KernelName name : kAutomaticKernels) {
    spec.kernel = DefaultKernel(name);
    const auto us = model.Predict(spec, offsets, offsets);
    if (us) info->examples.push_back({name, *us});
  }
}

// OK if the file holds a model for `key`.
absl::Status Read(const std::string& key, PreparedCosts* prepared) {
  auto read = ReadCosts(prepared->info.file, key);
  if (!read.ok()) return read.status();
  read->SetWorkers(prepared->model.workers());
  prepared->model = *std::move(read);
  prepared->info.source = CostModelInfo::Source::kFile;
  return absl::OkStatus();
}

void ReadOrMeasure(Device& device, const EngineOptions& options, PreparedCosts* prepared) {
  CostModelInfo& info = prepared->info;
  info.file = options.cost_model_file;
  const std::string key = CostKey(device, options);
  bool make_file = false;
  if (!info.file.empty()) {
    const absl::Status read = Read(key, prepared);
    if (read.ok()) return;
    make_file = absl::IsNotFound(read) && options.cost_model_budget.count() > 0;
    if (!make_file) info.note = std::string(read.message());
  }
  if (options.cost_model_budget.count() == 0) return;
  MeasuredCosts measured = MeasureCosts(device, options.cost_model_budget);
  prepared->model = std::move(measured.model);
  if (!measured.complete) info.note = "there was no time to measure every kernel, or one failed";
  if (prepared->model.empty()) return;
  info.source = CostModelInfo::Source::kMeasured;
  // An incomplete model is better than none, but other engines should not use it.
  if (!make_file || !measured.complete) return;
  const absl::Status written = WriteCosts(info.file, prepared->model, key);
  if (absl::IsAlreadyExists(written)) {
    Read(key, prepared).IgnoreError();  // another engine was faster
  } else if (!written.ok()) {
    info.note = std::string(written.message());
  }
}

}  // namespace

MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget) {
  constexpr int kPasses = 3;
  // The rest of the budget is for the last run, which may exceed it, and for the fit.
  const steady_clock::time_point until = steady_clock::now() + budget * 9 / 10;
  TrialRunner runner(device);
  std::vector<Measured> all = ServedTrials(runner, TrialLength(runner, until), device);
  // The first pass takes one kernel after another, so that some are complete even if time is short.
  // Later passes are in random order: as between requests, the device has just run something else.
  std::vector<std::pair<DType, Measured::Runs*>> order;
  for (Measured& of : all) {
    for (Measured::Runs& trial : of.trials) order.emplace_back(of.dtype, &trial);
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const auto& [dtype, trial] : order) {
      if (steady_clock::now() >= until) break;
      const auto us = runner.Run(trial->trial, dtype);
      if (us.ok() && *us > 0) trial->us.push_back(*us);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937());
  }
  MeasuredCosts result;
  CostModel& model = result.model;
  model.SetWorkers(device.info().threads);
  for (const Measured& of : all) {
    const std::vector<CostSample> samples = of.Samples();
    result.complete = result.complete && !samples.empty();
    const auto float32 = model.prices().find({of.kernel, DType::kFloat32});
    if (!samples.empty()) {
      model.Set(of.kernel, of.dtype, FitCosts(samples));
    } else if (float32 != model.prices().end()) {
      model.Set(of.kernel, of.dtype, CostTerms(float32->second));
    }
  }
  return result;
}

PreparedCosts PrepareCosts(Device& device, const EngineOptions& options) {
  PreparedCosts prepared;
  prepared.model.SetWorkers(device.info().threads);
  const bool measures = options.cost_model_budget.count() > 0;
  if ((!measures && options.cost_model_file.empty()) || !HasChoice(device)) return prepared;
  const steady_clock::time_point start = steady_clock::now();
  // A failure with a file or memory must not keep the engine from starting.
  const absl::Status status = Guarded([&] {
    ReadOrMeasure(device, options, &prepared);
    return absl::OkStatus();
  });
  if (!status.ok()) prepared.info.note = std::string(status.message());
  prepared.info.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  AddExamples(prepared.model, &prepared.info);
  return prepared;
}

void FillRandomly(DType dtype, HostBuffer& buffer) {
  uint32_t bits = 1;  // of a linear congruential generator, whose high bits are random enough
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
  return RunBatch(device, encoder::Batch{work.model.encoder(), work.kernel, work.items()});
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
  // With the same seed, the previous run's planes would be used again.
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
  return attention::Resolve(*request, device_.variants(), attention::NoCastLayer, sequences);
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
