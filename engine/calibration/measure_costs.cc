#include "engine/calibration/measure_costs.h"

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "engine/calibration/stopwatch.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

using attention::CostSample;

constexpr int64_t kDim = Trial::kDim;
const std::vector<int32_t> kTiny = {16};
const std::vector<int32_t> kMany(16, 16);

bool IsWork(size_t term) {
  return term != static_cast<size_t>(attention::CostTerm::kLaunch) &&
         term != static_cast<size_t>(attention::CostTerm::kSequences);
}

attention::CostTerms TermsOf(const Trial& trial) {
  return attention::CostTermsOf(trial.spec(DType::kFloat32), OffsetsOf(trial.queries),
                                OffsetsOf(trial.keys));
}

// The index of the trial with a single sequence and default parameters.
constexpr size_t kCommonTrial = 2;

// What distinguishes the terms: one short sequence (the launch), many (sequences), other lengths of
// queries and keys (tokens), another dimension (weights), fewer clusters, iterations and top keys.
std::vector<Trial> Trials(const Vanilla& vanilla, int32_t n) {
  return {{vanilla, kDim, kTiny, kTiny},     {vanilla, kDim, kMany, kMany},
          {vanilla, kDim, {n}, {n}},         {vanilla, kDim / 2, {n}, {n}},
          {vanilla, kDim, {n / 4}, {4 * n}}, {vanilla, kDim, {n / 2}, {n / 2}}};
}

template <typename Parameters>
std::vector<Trial> ClusteredTrials(const Parameters& kernel, int32_t n) {
  Parameters fewer_clusters = kernel;
  fewer_clusters.clusters = 25;
  Parameters fewer_iterations = kernel;
  fewer_iterations.iterations = 1;
  return {{kernel, kDim, kTiny, kTiny},
          {kernel, kDim, kMany, kMany},
          {kernel, kDim, {2 * n}, {2 * n}},
          {kernel, kDim / 2, {2 * n}, {2 * n}},
          {fewer_clusters, kDim, {2 * n}, {2 * n}},
          {fewer_iterations, kDim, {2 * n}, {2 * n}},
          {kernel, kDim, {n / 2}, {4 * n}},
          {kernel, kDim, {4 * n}, {4 * n}}};
}

std::vector<Trial> Trials(const Clustered& kernel, int32_t n) { return ClusteredTrials(kernel, n); }

std::vector<Trial> Trials(const ImprovedClustered& kernel, int32_t n) {
  std::vector<Trial> trials = ClusteredTrials(kernel, n);
  ImprovedClustered fewer_keys = kernel;
  fewer_keys.topk = 8;
  trials.push_back({fewer_keys, kDim, {2 * n}, {2 * n}});
  return trials;
}

// Kernels outside the automatic choice are not measured.
template <typename Other>
std::vector<Trial> Trials(const Other&, int32_t) {
  return {};
}

std::vector<Trial> TrialsOf(KernelName name, int32_t n) {
  return std::visit([n](const auto& kernel) { return Trials(kernel, n); }, DefaultKernel(name));
}

// A sequence length with which vanilla takes about a millisecond: long enough to keep the device
// busy, short enough for the budget.
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

// The samples of the trials that ran, in float32.
std::vector<CostSample> TakeSamples(Stopwatch& stopwatch, const std::vector<Trial>& trials) {
  std::vector<CostSample> samples;
  for (const Trial& trial : trials) {
    const std::optional<double> us = stopwatch.Time(trial, DType::kFloat32);
    if (us) samples.push_back({TermsOf(trial), *us});
  }
  return samples;
}

// The prices with which the trial takes `us`: scaled, except those that do not depend on the dtype.
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

}  // namespace

MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget) {
  Stopwatch stopwatch(device, budget);
  const int32_t n = TrialLength(stopwatch);
  MeasuredCosts measured;
  const auto runs = [&](const Trial& trial, DType dtype) {
    return attention::FindVariant(device.variants(), trial.spec(dtype)) != nullptr;
  };
  for (const auto& [name, label, kind] : kKernels) {
    const std::vector<Trial> trials = TrialsOf(name, n);
    if (trials.empty() || !runs(trials.front(), DType::kFloat32)) continue;
    const std::vector<CostSample> samples = TakeSamples(stopwatch, trials);
    if (samples.size() == trials.size()) {
      measured.model.Set(name, DType::kFloat32, attention::FitCosts(samples));
    } else {
      measured.complete = false;
    }
  }
  // The other dtypes do the same work at another speed: one trial gives the ratio.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [name, label, kind] : kKernels) {
      const auto known = measured.model.prices().find({name, DType::kFloat32});
      if (known == measured.model.prices().end()) continue;
      const Trial trial = TrialsOf(name, n)[kCommonTrial];
      if (!runs(trial, dtype)) continue;
      const attention::CostTerms prices = known->second;
      const std::optional<double> us = stopwatch.Time(trial, dtype);
      measured.complete = measured.complete && us.has_value();
      measured.model.Set(name, dtype, us ? Scaled(prices, trial, *us) : prices);
    }
  }
  return measured;
}

}  // namespace castor
