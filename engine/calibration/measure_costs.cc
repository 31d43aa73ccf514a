#include "engine/calibration/measure_costs.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/cost/typical_prices.h"
#include "engine/attention/variants.h"
#include "engine/calibration/random_trials.h"
#include "engine/calibration/stopwatch.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

using attention::CostModel;
using attention::CostSample;
using attention::CostTerm;
using attention::CostTerms;
using attention::kCostTerms;
using attention::Team;
using std::chrono::steady_clock;

constexpr int64_t kDim = Trial::kDim;
const std::vector<int32_t> kTiny = {16};
const std::vector<int32_t> kMany(16, 16);

CostTerms TermsOf(const Trial& trial, DType dtype, const Team& team) {
  return attention::CostTermsOf(trial.spec(dtype), OffsetsOf(trial.queries), OffsetsOf(trial.keys),
                                team);
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
  trials.push_back({attention::WithOptionsBeyondThePaper(kernel), kDim, {2 * n}, {2 * n}});
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
  // Until all workers were seen at work: a thread of another process may keep one of them for tens
  // of milliseconds, and a gain that is too small spoils all that is fitted with it.
  constexpr int kRounds = 8;
  constexpr double kLeastGain = 0.25;
  constexpr double kGood = 0.9;
  std::optional<double> one;
  std::optional<double> all;
  for (int round = 0; round < kRounds; ++round) {
    const auto us = stopwatch.Time(alone, DType::kFloat32);
    const auto shared_us = stopwatch.Time(shared, DType::kFloat32);
    if (!us || !shared_us) break;
    one = std::min(one.value_or(*us), *us);
    all = std::min(all.value_or(*shared_us), *shared_us);
    const double speed = team.workers * *one / *all;
    team.gain = std::clamp((speed - 1) / (team.workers - 1), kLeastGain, 1.0);
    if (team.gain > kGood) break;
  }
  return team;
}

// The samples of the trials that ran.
std::vector<CostSample> TakeSamples(Stopwatch& stopwatch, const std::vector<Trial>& trials,
                                    DType dtype, const Team& team) {
  std::vector<CostSample> samples;
  for (const Trial& trial : trials) {
    const std::optional<double> us = stopwatch.Time(trial, dtype);
    if (us) samples.push_back({TermsOf(trial, dtype, team), *us});
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

// Weak samples that hold each price near what it was.
void AddPrior(const CostTerms& prices, double weight, std::vector<CostSample>* samples) {
  for (size_t t = 0; t < kCostTerms; ++t) {
    if (prices[t] == 0) continue;
    CostSample& sample = samples->emplace_back();
    sample.terms[t] = 1;
    sample.us = prices[t];
    sample.weight = weight;
  }
}

enum class Share { kFixed, kMoving, kComputing };

Share ShareOf(size_t term) {
  if (term < attention::kFixedCostTerms) return Share::kFixed;
  const auto is = [&](CostTerm which) { return term == static_cast<size_t>(which); };
  const bool moves = is(CostTerm::kRows) || is(CostTerm::kTails) || is(CostTerm::kTokens) ||
                     is(CostTerm::kStores) || is(CostTerm::kGather);
  return moves ? Share::kMoving : Share::kComputing;
}

// The prices of another dtype with these samples: three factors.
CostTerms Scaled(const CostTerms& prices, const std::vector<CostSample>& measured) {
  constexpr size_t kShares = 3;
  // A share that costs nothing in the samples has no factor; a run that beats another share was
  // measured badly.
  constexpr double kLeast = 0.5;
  std::vector<RelativeSample<kShares>> samples;
  for (const CostSample& of : measured) {
    RelativeSample<kShares>& sample = samples.emplace_back();
    sample.us = of.us;
    for (size_t t = 0; t < kCostTerms; ++t) {
      sample.terms[static_cast<size_t>(ShareOf(t))] += of.terms[t] * prices[t];
    }
  }
  const auto factors = FitRelative<kShares>(samples);
  CostTerms scaled = prices;
  for (size_t t = 0; t < kCostTerms; ++t) {
    scaled[t] *= std::max(kLeast, factors[static_cast<size_t>(ShareOf(t))]);
  }
  return scaled;
}

// What was measured of one kernel in one dtype.
struct Measured {
  KernelName kernel;
  DType dtype;
  std::vector<Trial> trials;
  std::vector<CostSample> samples;
};

// A trial among those of all kernels.
struct MixedTrial {
  size_t of;  // in what was measured
  Trial trial;
  double us = 0;  // of its shortest run; 0 before the first
};

// The trials of all kernels, and random ones, in random order: so before each run the device was
// busy with something else, as it is between requests.
std::vector<MixedTrial> MixTrials(const std::vector<Measured>& measured, const CostModel& model,
                                  std::span<const attention::Variant> variants, int64_t tokens) {
  constexpr int kTrials = 72;       // float32
  constexpr int kOtherTrials = 40;  // of each other dtype
  constexpr double kMostUs = 1000;
  RandomTrials random(model, variants, tokens, kMostUs);
  std::vector<MixedTrial> mixed;
  for (size_t of = 0; of < measured.size(); ++of) {
    const auto& [kernel, dtype, trials, samples] = measured[of];
    for (const Trial& trial : trials) mixed.push_back({of, trial});
    const int count = dtype == DType::kFloat32 ? kTrials : kOtherTrials;
    for (int i = 0; i < count; ++i) {
      if (auto trial = random.Draw(kernel, dtype)) mixed.push_back({of, *std::move(trial)});
    }
  }
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937());
  return mixed;
}

// Runs each once, as far as `until` allows. One run is enough: what single runs are off cancels out
// in the fit, and more trials say more than more runs.
void RunMixed(Stopwatch& stopwatch, const std::vector<Measured>& measured,
              steady_clock::time_point until, std::vector<MixedTrial>* mixed) {
  for (MixedTrial& trial : *mixed) {
    if (steady_clock::now() >= until) return;
    const auto us = stopwatch.TimeOnce(trial.trial, measured[trial.of].dtype);
    if (us) trial.us = trial.us == 0 ? *us : std::min(trial.us, *us);
  }
}

// What was measured, with these trials: in place of what was, unless there was little time.
std::vector<Measured> WithMixed(std::vector<Measured> measured,
                                const std::vector<MixedTrial>& mixed, const Team& team) {
  std::vector<std::vector<CostSample>> samples(measured.size());
  for (const auto& [of, trial, us] : mixed) {
    if (us > 0) samples[of].push_back({TermsOf(trial, measured[of].dtype, team), us});
  }
  for (size_t of = 0; of < measured.size(); ++of) {
    std::vector<CostSample>& before = measured[of].samples;
    if (samples[of].size() > 2 * before.size()) before.clear();
    before.insert(before.end(), samples[of].begin(), samples[of].end());
  }
  return measured;
}

// Whether more trials than on a quiet machine took much longer than the prices say.
bool Disturbed(const std::vector<Measured>& measured, const CostModel& model) {
  constexpr double kMuch = 1.5;
  constexpr double kQuiet = 0.08;
  double all = 0;
  double slow = 0;
  for (const auto& [kernel, dtype, trials, samples] : measured) {
    const CostTerms& prices = *model.Find(kernel, dtype);
    for (const CostSample& sample : samples) {
      all += 1;
      slow += sample.us > kMuch * attention::CostsOf(sample.terms, prices).total_us();
    }
  }
  return slow > kQuiet * all;
}

// Fits the prices again. Where runs do not tell terms apart, a CPU's prices stand in the usual
// proportion, and those of another dtype in that of float32's.
void FitAgain(const std::vector<Measured>& measured, bool typical, CostModel* model) {
  constexpr double kWeight = 0.5;
  CostTerms shared{};
  for (const auto& [kernel, dtype, trials, samples] : measured) {
    std::vector<CostSample> all = samples;
    if (dtype != DType::kFloat32) {
      AddPrior(Scaled(*model->Find(kernel, DType::kFloat32), samples), kWeight, &all);
    } else if (typical) {
      AddPrior(Scaled(attention::TypicalPrices(kernel), samples), kWeight, &all);
    } else {
      AddShared(shared, &all);
    }
    const CostTerms prices = attention::FitCosts(all);
    model->Set(kernel, dtype, prices);
    if (dtype != DType::kFloat32) continue;
    for (size_t t = 0; t < kCostTerms; ++t) {
      if (shared[t] == 0) shared[t] = prices[t];
    }
  }
}

}  // namespace

MeasuredCosts MeasureCosts(Device& device, std::chrono::microseconds budget) {
  const steady_clock::time_point start = steady_clock::now();
  Stopwatch stopwatch(device, budget);
  const int32_t n = TrialLength(stopwatch);
  const Team team = MeasureTeam(device, stopwatch, n);
  MeasuredCosts result;
  CostModel& model = result.model;
  model.SetTeam(team);
  std::vector<Measured> measured;
  CostTerms shared{};  // prices of the terms that were measured so far
  const auto runs = [&](const Trial& trial, DType dtype) {
    return attention::FindVariant(device.variants(), trial.spec(dtype)) != nullptr;
  };
  for (const auto& [name, label, kind] : kKernels) {
    std::vector<Trial> trials = TrialsOf(name, n);
    std::erase_if(trials, [&](const Trial& trial) { return !runs(trial, DType::kFloat32); });
    if (trials.empty()) continue;
    std::vector<CostSample> samples = TakeSamples(stopwatch, trials, DType::kFloat32, team);
    if (samples.size() < trials.size()) {
      result.complete = false;
      continue;
    }
    measured.push_back({name, DType::kFloat32, trials, samples});
    AddShared(shared, &samples);
    const CostTerms prices = attention::FitCosts(samples);
    model.Set(name, DType::kFloat32, prices);
    for (size_t t = 0; t < kCostTerms; ++t) {
      if (shared[t] == 0) shared[t] = prices[t];
    }
  }
  // The other dtypes do the same work at another speed.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [name, label, kind] : kKernels) {
      const CostTerms* const known = model.Find(name, DType::kFloat32);
      if (known == nullptr) continue;
      const CostTerms prices = *known;
      const std::vector<Trial> trials = DTypeTrials(name, n);
      if (!runs(trials.front(), dtype)) continue;
      std::vector<CostSample> samples = TakeSamples(stopwatch, trials, dtype, team);
      const bool all = samples.size() == trials.size();
      result.complete = result.complete && all;
      model.Set(name, dtype, all ? Scaled(prices, samples) : prices);
      measured.push_back({name, dtype, trials, std::move(samples)});
    }
  }
  if (!result.complete) return result;
  // What is left of the budget, but for the fit. The shortest runs count where others compete for
  // the machine.
  constexpr int kMostPasses = 8;
  const auto until = start + budget * 9 / 10;
  std::vector<MixedTrial> mixed = MixTrials(measured, model, device.variants(), int64_t{4} * n);
  for (int pass = 0; pass < kMostPasses && steady_clock::now() < until; ++pass) {
    RunMixed(stopwatch, measured, until, &mixed);
    const std::vector<Measured> all = WithMixed(measured, mixed, team);
    FitAgain(all, device.info().name == "cpu", &model);
    if (!Disturbed(all, model)) break;
  }
  return result;
}

}  // namespace castor
