#include "engine/calibration/random_trials.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/cost/cost_terms.h"

namespace castor {
namespace {

// The most elements of a trial's inputs: a fraction of the memory that all trials share, so that
// each finds other memory than the one before.
constexpr int64_t kMostElements = int64_t{1} << 21;

int64_t Total(const std::vector<int32_t>& lengths) {
  int64_t total = 0;
  for (const int32_t length : lengths) total += length;
  return total;
}

// Whether there was anything to halve.
bool Halve(std::vector<int32_t>* lengths) {
  bool halved = false;
  for (int32_t& length : *lengths) {
    halved = halved || length > 1;
    length = std::max(1, length / 2);
  }
  return halved;
}

}  // namespace

int64_t RandomTrials::Uniform(int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
}

// As many between 10 and 20 as between 100 and 200.
int64_t RandomTrials::Spread(int64_t least, int64_t most) {
  const double share = static_cast<double>(random_()) / 4294967296.0;
  const double low = std::log(static_cast<double>(least));
  const double high = std::log(static_cast<double>(most) + 1);
  return std::clamp(static_cast<int64_t>(std::exp(low + share * (high - low))), least, most);
}

int64_t RandomTrials::Dim() {
  constexpr int64_t kUsual[] = {16, 32, 64, 64, 128, 256};
  return Chance(50) ? kUsual[Uniform(0, 5)] : Uniform(1, 256);
}

std::vector<int32_t> RandomTrials::Lengths(int64_t sequences) {
  const int64_t tokens = Spread(16, std::max<int64_t>(16, tokens_));
  std::vector<int32_t> lengths;
  for (int64_t s = 0; s < sequences; ++s) {
    lengths.push_back(
        static_cast<int32_t>(Uniform(1, std::max<int64_t>(1, 2 * tokens / sequences))));
  }
  return lengths;
}

Kernel RandomTrials::Parameters(KernelName kernel, DType dtype) {
  if (kernel == KernelName::kVanilla) return Vanilla{.causal = Chance(30)};
  if (kernel == KernelName::kCast) {
    Cast cast;
    if (Chance(50)) cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
    if (Chance(50)) cast.attention_function = Cast::AttentionFunction::kLaplace;
    if (Chance(50)) cast.head_clustering = Cast::HeadClustering::kPerHead;
    return cast;
  }
  ImprovedClustered improved;
  if (Chance(50)) improved.clusters = static_cast<int32_t>(Spread(10, 400));
  if (Chance(50)) improved.topk = static_cast<int32_t>(Spread(4, 128));
  if (Chance(30)) improved.iterations = static_cast<int32_t>(Uniform(1, 15));
  if (kernel != KernelName::kImprovedClustered) return static_cast<const Clustered&>(improved);
  // As the automatic kernel has them: both options or none.
  ImprovedClustered with_options = attention::WithOptionsBeyondThePaper(improved);
  with_options.iterations = static_cast<int32_t>(Uniform(1, 3));
  const attention::Spec spec = Trial{with_options, Trial::kDim, {}, {}}.spec(dtype);
  const bool has_options = attention::CheckOption(variants_, spec).ok();
  return has_options && Chance(40) ? with_options : improved;
}

bool RandomTrials::TooLong(const Trial& trial, DType dtype) const {
  const attention::Spec spec = trial.spec(dtype);
  const int64_t elements =
      spec.heads * (Total(trial.queries) + Total(trial.keys)) * (spec.head_dim + spec.value_dim);
  if (elements > kMostElements) return true;
  const auto us = model_.Predict(spec, OffsetsOf(trial.queries), OffsetsOf(trial.keys));
  return !us || *us > most_us_;
}

std::optional<Trial> RandomTrials::Draw(KernelName kernel, DType dtype) {
  const bool cast = kernel == KernelName::kCast;
  Trial trial = {Parameters(kernel, dtype), Dim(), {}, {}, Uniform(1, 16)};
  trial.value_dim = cast || Chance(70) ? trial.dim : Dim();
  if (cast) trial.surrogates = Spread(2, 64);
  const int64_t sequences = Chance(50) ? 1 : Spread(1, 64);
  trial.queries = Lengths(sequences);
  trial.keys = !cast && Chance(30) ? Lengths(sequences) : trial.queries;
  if (trial.keys != trial.queries) {
    if (auto* vanilla = std::get_if<Vanilla>(&trial.kernel)) vanilla->causal = false;
  }
  while (TooLong(trial, dtype)) {
    const bool queries = Halve(&trial.queries);
    if (!Halve(&trial.keys) && !queries) return std::nullopt;
  }
  return trial;
}

}  // namespace castor
