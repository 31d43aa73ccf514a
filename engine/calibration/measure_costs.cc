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
using attention::CostTerm;
using attention::CostTerms;
using attention::kCostTerms;
using attention::Team;

constexpr int64_t kDim = Trial::kDim;
const std::vector<int32_t> kTiny = {16};
const std::vector<int32_t> kMany(16, 16);

CostTerms TermsOf(const Trial& trial, const Team& team) {
  return attention::CostTermsOf(trial.spec(DType::kFloat32), OffsetsOf(trial.queries),
                                OffsetsOf(trial.keys), team);
}

// What distinguishes the terms: one short sequence (the launch), many (tasks), other lengths of
// queries and keys (tokens, blocks), other dimensions (weights), one head (the team), fewer
// clusters, iterations, bits and top keys.
std::vector<Trial> Trials(const Vanilla& vanilla, int32_t n) {
  return {{vanilla, kDim, kTiny, kTiny},
          {vanilla, kDim, kMany, kMany},
          {vanilla, kDim, {n}, {n}},
          {vanilla, kDim / 2, {n}, {n}},
          {vanilla, 8, {n}, {n}},
          {vanilla, 4 * kDim, {n / 2}, {n / 2}, 2},
          {vanilla, kDim, {n / 4}, {4 * n}},
          {vanilla, kDim, {16}, {8 * n}},
          {vanilla, kDim, {4 * n}, {16}},
          {vanilla, 16, {4 * n}, {16}},
          {vanilla, 20, {16}, {8 * n}},
          {vanilla, kDim, {n / 2}, {n / 2}},
          {vanilla, kDim, {2 * n}, {n}, 1},
          {vanilla, kDim, kTiny, kTiny, 1},
          {vanilla, 4 * kDim, kTiny, kTiny, 2}};
}

template <typename Parameters>
std::vector<Trial> ClusteredTrials(const Parameters& kernel, int32_t n) {
  Parameters fewer_clusters = kernel;
  fewer_clusters.clusters = 25;
  Parameters fewer_iterations = kernel;
  fewer_iterations.iterations = 1;
  Parameters fewer_bits = kernel;
  fewer_bits.bits = 16;
  return {{kernel, kDim, kTiny, kTiny},
          {kernel, kDim, kMany, kMany},
          {kernel, kDim, {2 * n}, {2 * n}},
          {kernel, kDim / 2, {2 * n}, {2 * n}},
          {kernel, 8, {2 * n}, {2 * n}},
          {kernel, 4 * kDim, {n}, {n}, 2},
          {fewer_clusters, kDim, {2 * n}, {2 * n}},
          {fewer_iterations, kDim, {2 * n}, {2 * n}},
          {fewer_bits, kDim, {2 * n}, {2 * n}},
          {kernel, kDim, {n / 2}, {4 * n}},
          {kernel, kDim, {4 * n}, {n / 2}},
          {kernel, kDim, {16}, {4 * n}},
          {kernel, 4 * kDim, kTiny, kTiny, 2},
          {kernel, 28, {n}, {n}},
          {kernel, kDim, {4 * n}, {4 * n}, 1}};
}

std::vector<Trial> Trials(const Clustered& kernel, int32_t n) { return ClusteredTrials(kernel, n); }

std::vector<Trial> Trials(const ImprovedClustered& kernel, int32_t n) {
  std::vector<Trial> trials = ClusteredTrials(kernel, n);
  ImprovedClustered fewer_keys = kernel;
  fewer_keys.topk = 8;
  trials.push_back({fewer_keys, kDim, {2 * n}, {2 * n}});
  ImprovedClustered more_keys = kernel;
  more_keys.topk = 96;
  trials.push_back({more_keys, kDim / 2, {n / 2}, {n / 2}});
  return trials;
}

std::vector<Trial> Trials(const Cast& kernel, int32_t n) {
  constexpr int64_t kSurrogates = 16;
  Cast larger = kernel;
  larger.cluster_size = n / 2;
  Cast single = kernel;
  single.clustering = Cast::Clustering::kSingleAssignmentTopK;
  Cast laplace = kernel;
  laplace.attention_function = Cast::AttentionFunction::kLaplace;
  Cast per_head = kernel;
  per_head.head_clustering = Cast::HeadClustering::kPerHead;
  std::vector<Trial> trials;
  const auto add = [&](const Cast& cast, int64_t dim, const std::vector<int32_t>& tokens,
                       int64_t surrogates, int64_t heads = Trial::kHeads) {
    trials.push_back({cast, dim, tokens, tokens, heads, surrogates});
  };
  add(kernel, kDim, kTiny, kSurrogates);
  add(kernel, kDim, kMany, kSurrogates);
  add(kernel, kDim, {4 * n}, kSurrogates);
  add(kernel, kDim / 2, {4 * n}, kSurrogates);
  add(kernel, 8, {4 * n}, kSurrogates);
  add(kernel, 4 * kDim, {n}, kSurrogates, 2);
  add(kernel, kDim, {2 * n}, 4 * kSurrogates);
  add(kernel, 4 * kDim, {n}, 4 * kSurrogates, 2);
  add(kernel, kDim, {n}, 4);
  add(kernel, 28, {n}, kSurrogates);
  add(larger, kDim, {n}, kSurrogates);
  add(single, kDim, {4 * n}, kSurrogates);
  add(single, kDim, {2 * n}, 4 * kSurrogates, 2);
  add(laplace, kDim, {4 * n}, kSurrogates);
  add(per_head, kDim, {4 * n}, kSurrogates);
  add(kernel, kDim, {4 * n}, kSurrogates, 1);
  return trials;
}

std::vector<Trial> TrialsOf(KernelName name, int32_t n) {
  return std::visit(
      [n](const auto& kernel) -> std::vector<Trial> {
        if constexpr (std::is_same_v<std::decay_t<decltype(kernel)>, Automatic>) {
          return {};
        } else {
          return Trials(kernel, n);
        }
      },
      DefaultKernel(name));
}

// Of each kernel's trials, those that tell another dtype's factors: one short sequence, the common
// problem, and many rows for little work.
std::vector<Trial> DTypeTrials(KernelName name, int32_t n) {
  const std::vector<Trial> all = TrialsOf(name, n);
  Trial moving = all[2];
  if (name == KernelName::kCast) {
    moving.surrogates = 4;
    std::get<Cast>(moving.kernel).cluster_size = 16;
  } else {
    moving.queries = {16};
    moving.keys = {8 * n};
  }
  return {all[0], all[2], moving};
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

// A head of one tile keeps one worker busy, a head for each worker keeps all.
Team MeasureTeam(const Device& device, Stopwatch& stopwatch, int32_t n) {
  constexpr int32_t kTile = 192;
  Team team = {.workers = std::max(1, device.info().threads)};
  if (team.workers == 1) return team;
  const Trial alone = {Vanilla{}, kDim, {kTile}, {8 * n}, 1};
  Trial shared = alone;
  shared.heads = team.workers;
  const auto one = stopwatch.Time(alone, DType::kFloat32);
  const auto all = stopwatch.Time(shared, DType::kFloat32);
  if (!one || !all) return team;
  constexpr double kLeastGain = 0.25;
  const double speed = team.workers * *one / *all;
  team.gain = std::clamp((speed - 1) / (team.workers - 1), kLeastGain, 1.0);
  return team;
}

// The samples of the trials that ran, in float32.
std::vector<CostSample> TakeSamples(Stopwatch& stopwatch, const std::vector<Trial>& trials,
                                    const Team& team) {
  std::vector<CostSample> samples;
  for (const Trial& trial : trials) {
    const std::optional<double> us = stopwatch.Time(trial, DType::kFloat32);
    if (us) samples.push_back({TermsOf(trial, team), *us});
  }
  return samples;
}

// Kernels share code, so most terms cost each about what they cost the one before that has them: a
// weak sample for every such term, which decides where a kernel's own runs do not tell terms apart.
void AddShared(const CostTerms& shared, std::vector<CostSample>* samples) {
  constexpr double kWeight = 0.2;
  CostTerms used{};
  for (const CostSample& sample : *samples) {
    for (size_t t = 0; t < kCostTerms; ++t) used[t] += sample.terms[t];
  }
  for (size_t t = attention::kFixedCostTerms - 1; t < kCostTerms; ++t) {
    // Improved clustered and CAST gather and select different things.
    const auto is = [t](CostTerm term) { return t == static_cast<size_t>(term); };
    if (shared[t] == 0 || used[t] == 0 || is(CostTerm::kGather) || is(CostTerm::kSelect)) continue;
    CostSample& sample = samples->emplace_back();
    sample.terms[t] = 1;
    sample.us = shared[t];
    sample.weight = kWeight;
  }
}

enum class Share { kFixed, kMoving, kComputing };

Share ShareOf(size_t term) {
  if (term < attention::kFixedCostTerms) return Share::kFixed;
  const auto is = [&](CostTerm which) { return term == static_cast<size_t>(which); };
  const bool moves =
      is(CostTerm::kRows) || is(CostTerm::kTails) || is(CostTerm::kTokens) || is(CostTerm::kGather);
  return moves ? Share::kMoving : Share::kComputing;
}

// The prices of another dtype in which these trials take `us`: three factors.
CostTerms Scaled(const CostTerms& prices, const std::vector<Trial>& trials,
                 const std::vector<double>& us, const Team& team) {
  constexpr size_t kShares = 3;
  // A share that costs nothing in the samples has no factor; a run that beats another share was
  // measured badly.
  constexpr double kLeast = 0.5;
  std::vector<RelativeSample<kShares>> samples;
  for (size_t i = 0; i < trials.size(); ++i) {
    const CostTerms terms = TermsOf(trials[i], team);
    RelativeSample<kShares>& sample = samples.emplace_back();
    sample.us = us[i];
    for (size_t t = 0; t < kCostTerms; ++t) {
      sample.terms[static_cast<size_t>(ShareOf(t))] += terms[t] * prices[t];
    }
  }
  const auto factors = FitRelative<kShares>(samples);
  CostTerms scaled = prices;
  for (size_t t = 0; t < kCostTerms; ++t) {
    scaled[t] *= std::max(kLeast, factors[static_cast<size_t>(ShareOf(t))]);
  }
  return scaled;
}

}  // namespace

MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget) {
  Stopwatch stopwatch(device, budget);
  const int32_t n = TrialLength(stopwatch);
  const Team team = MeasureTeam(device, stopwatch, n);
  MeasuredCosts measured;
  measured.model.SetTeam(team);
  CostTerms shared{};  // prices of the terms that were measured so far
  const auto runs = [&](const Trial& trial, DType dtype) {
    return attention::FindVariant(device.variants(), trial.spec(dtype)) != nullptr;
  };
  for (const auto& [name, label, kind] : kKernels) {
    const std::vector<Trial> trials = TrialsOf(name, n);
    if (!runs(trials.front(), DType::kFloat32)) continue;
    std::vector<CostSample> samples = TakeSamples(stopwatch, trials, team);
    if (samples.size() == trials.size()) {
      AddShared(shared, &samples);
      const CostTerms prices = attention::FitCosts(samples);
      measured.model.Set(name, DType::kFloat32, prices);
      for (size_t t = 0; t < kCostTerms; ++t) {
        if (shared[t] == 0) shared[t] = prices[t];
      }
    } else {
      measured.complete = false;
    }
  }
  // The other dtypes do the same work at another speed.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [name, label, kind] : kKernels) {
      const CostTerms* const known = measured.model.Find(name, DType::kFloat32);
      if (known == nullptr) continue;
      const CostTerms prices = *known;
      const std::vector<Trial> trials = DTypeTrials(name, n);
      if (!runs(trials.front(), dtype)) continue;
      std::vector<double> us;
      for (const Trial& trial : trials) {
        const std::optional<double> taken = stopwatch.Time(trial, dtype);
        if (taken) us.push_back(*taken);
      }
      const bool all = us.size() == trials.size();
      measured.complete = measured.complete && all;
      measured.model.Set(name, dtype, all ? Scaled(prices, trials, us, team) : prices);
    }
  }
  return measured;
}

}  // namespace castor
