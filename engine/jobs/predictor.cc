#include "engine/jobs/predictor.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/cost/rungs.h"
#include "engine/attention/cost/typical_prices.h"

namespace castor {
namespace {

using attention::CostTerms;
using attention::Spec;

// How wrong a base may be, one that was measured and one from an assumed speed, and how many runs
// each is worth.
constexpr double kMeasuredError = 4;
constexpr double kMeasuredTrust = 10;
constexpr double kAssumedError = 1000;
constexpr double kAssumedTrust = 1;

// Kinds of prediction that are remembered. The oldest models are forgotten first.
constexpr size_t kMostKeys = 256;

// English in WordPiece; corrected by what a model's tokenizer makes of its texts.
constexpr double kUsualBytesPerToken = 4.5;
constexpr double kSpecialTokens = 2;
constexpr double kTextStep = 0.02;

// Where nothing was measured: the usual processor, but half as fast, as one with vectors of 256
// bits is.
CostTerms AssumedPrices(KernelName kernel) {
  constexpr double kSlower = 2;
  CostTerms prices = attention::TypicalPrices(kernel);
  for (double& us : prices) us *= kSlower;
  return prices;
}

attention::CostModel WithTeam(attention::CostModel costs, int workers) {
  if (costs.empty()) costs.SetTeam({.workers = std::max(1, workers)});
  return costs;
}

std::vector<encoder::AttentionLayers> AttentionOf(const LoadedModel& model, const Kernel& kernel) {
  return model.encoder == nullptr ? encoder::UniformAttention(model.info, kernel)
                                  : model.encoder->attention(kernel);
}

// The offsets of at most `rows` queries of each sequence.
std::vector<int32_t> FirstRows(std::span<const int32_t> cu_seqlens, int32_t rows) {
  std::vector<int32_t> offsets = {0};
  offsets.reserve(cu_seqlens.size());
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    offsets.push_back(offsets.back() + std::min(rows, cu_seqlens[s + 1] - cu_seqlens[s]));
  }
  return offsets;
}

}  // namespace

Predictor::Predictor(attention::CostModel costs, int workers)
    : costs_(WithTeam(std::move(costs), workers)), workers_(workers) {}

PredictedTime Predictor::Base(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                              std::span<const int32_t> cu_seqlens_k) const {
  const KernelName kernel = NameOf(spec.kernel);
  const CostTerms* const prices = costs_.Find(kernel, spec.dtype);
  const attention::Costs costs =
      attention::CostsOf(attention::CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k, costs_.team()),
                         prices == nullptr ? AssumedPrices(kernel) : *prices);
  return {.batch_us = costs.batch_us, .own_us = costs.own_us};
}

PredictedTime Predictor::Base(const LoadedModel& model, const Kernel& kernel,
                              std::span<const int32_t> cu_seqlens, double read_out) const {
  const std::vector<encoder::AttentionLayers> layers = AttentionOf(model, kernel);
  const encoder::CostTerms terms = encoder::CostTermsOf(cu_seqlens, layers);
  const encoder::CostModel costs =
      model.costs.measured ? model.costs : encoder::AssumedCosts(model.info, std::max(1, workers_));
  PredictedTime base = {.batch_us = costs.batch_us(terms), .own_us = costs.rows_us(terms)};
  base.own_us += encoder::ReadOutUs(read_out, workers_);
  // What a model's own runs have measured includes its own kernel's pairs.
  if (NameOf(kernel) == NameOf(model.info.kernel)) {
    base.own_us += costs.pairs_us(terms);
  } else {
    for (const encoder::AttentionLayers& alike : layers) {
      base.own_us +=
          static_cast<double>(alike.layers) * Base(alike.spec, cu_seqlens, cu_seqlens).alone_us();
    }
  }
  return base;
}

PredictedTime Predictor::Attention(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                   std::span<const int32_t> cu_seqlens_k) const {
  const KernelName kernel = NameOf(spec.kernel);
  const CostTerms* const prices = costs_.Find(kernel, spec.dtype);
  if (prices == nullptr) {
    return Corrected({0, kernel, spec.dtype}, Base(spec, cu_seqlens_q, cu_seqlens_k));
  }
  const CostTerms us = attention::TermCosts(
      attention::CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k, costs_.team()), *prices);
  CostTerms corrected = us;
  {
    MutexLock lock(mu_);
    const auto found = learned_.find({kernel, spec.dtype});
    if (found != learned_.end()) corrected = found->second.Corrected(us);
  }
  const double base_us = attention::CostsOf(us).total_us();
  const attention::Costs costs = attention::CostsOf(corrected);
  return {.batch_us = costs.batch_us,
          .own_us = costs.own_us,
          .correction = base_us > 0 ? costs.total_us() / base_us : 1};
}

PredictedTime Predictor::Predict(const Plan& plan, const attention::Resolved& resolved) const {
  const Spec& spec = resolved.spec;
  const std::vector<int32_t>& queries = resolved.cu_seqlens_q;
  const PredictedTime run = Attention(spec, queries, resolved.cu_seqlens_k);
  if (plan.probe_rows() == 0 || !attention::IsApproximate(NameOf(spec.kernel))) return run;

  // Some queries of each sequence attend exactly.
  Spec exact = spec;
  exact.kernel = Vanilla{};
  const PredictedTime probe =
      Attention(exact, FirstRows(queries, plan.probe_rows()), resolved.cu_seqlens_k);
  PredictedTime both = run;
  both.batch_us += probe.batch_us;
  both.own_us += probe.own_us;
  return both;
}

PredictedTime Predictor::Predict(const LoadedModel& model, const Kernel& kernel,
                                 std::span<const int32_t> cu_seqlens, double read_out) const {
  return Corrected({model.generation, NameOf(kernel), {}},
                   Base(model, kernel, cu_seqlens, read_out));
}

PredictedTime Predictor::Predict(const Job& job) const {
  if (const auto* work = std::get_if<AttentionWork>(&job.work)) {
    return Predict(job.plan, work->resolved);
  }
  const auto& work = std::get<EncodeWork>(job.work);
  return Predict(*work.model, work.kernel, work.item.cu_seqlens,
                 encoder::ReadOutElements(work.item, work.model->info));
}

std::vector<int32_t> Predictor::ExpectedOffsets(const std::string& tenant, const LoadedModel& model,
                                                const TextInput& input, size_t prompt_bytes) const {
  double ratio = kUsualBytesPerToken;
  {
    MutexLock lock(mu_);
    const double* const learned = bytes_per_token_.Find(tenant, model.generation);
    if (learned != nullptr) ratio = *learned;
  }
  std::vector<int32_t> offsets = {0};
  offsets.reserve(input.texts.size() + 1);
  const auto most = static_cast<double>(std::max<int64_t>(1, model.info.max_tokens));
  for (size_t i = 0; i < input.texts.size(); ++i) {
    size_t bytes = prompt_bytes + input.texts[i].size();
    if (i < input.pairs.size()) bytes += input.pairs[i].size();
    const double tokens = kSpecialTokens + static_cast<double>(bytes) / ratio;
    offsets.push_back(offsets.back() + static_cast<int32_t>(std::min(most, tokens)));
  }
  return offsets;
}

void Predictor::LearnTexts(const std::string& tenant, const LoadedModel& model,
                           const TextInput& input, const encoder::Prepared& prepared,
                           size_t prompt_bytes) {
  double bytes = 0;
  double tokens = 0;
  const size_t texts = std::min(input.texts.size(), static_cast<size_t>(prepared.sequences()));
  for (size_t i = 0; i < texts; ++i) {
    if (prepared.truncated[i]) continue;  // says nothing about the rest of the text
    bytes += static_cast<double>(prompt_bytes + input.texts[i].size());
    if (i < input.pairs.size()) bytes += static_cast<double>(input.pairs[i].size());
    tokens += prepared.cu_seqlens[i + 1] - prepared.cu_seqlens[i] - kSpecialTokens;
  }
  if (bytes <= 0 || tokens <= 0) return;
  MutexLock lock(mu_);
  double& ratio = bytes_per_token_.Learn(tenant, model.generation, kUsualBytesPerToken);
  // A long request says more than a word does.
  const double step = std::max(kTextStep, tokens / (tokens + 500));
  ratio *= std::pow(bytes / tokens / ratio, step);
}

Predictor::Part Predictor::PartOf(const Job& job) const {
  if (job.operation == Operation::kAttend) {
    const attention::Resolved& resolved = std::get<AttentionWork>(job.work).resolved;
    const Spec& spec = resolved.spec;
    const KernelName kernel = NameOf(spec.kernel);
    return {.key = {0, kernel, spec.dtype},
            .base = Base(spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k),
            .measured = costs_.Find(kernel, spec.dtype) != nullptr};
  }
  const auto& work = std::get<EncodeWork>(job.work);
  return {.key = {work.model->generation, NameOf(work.kernel), {}},
          .base = Base(*work.model, work.kernel, work.item.cu_seqlens,
                       encoder::ReadOutElements(work.item, work.model->info)),
          .measured = work.model->costs.measured};
}

// Requests of attention that share a batch share a spec. None if its prices were not measured.
std::optional<Predictor::Prices> Predictor::PricesOf(const JobList& jobs) const {
  const CostTerms* prices = nullptr;
  Prices batch;
  for (const auto& job : jobs) {
    if (job->operation != Operation::kAttend) return std::nullopt;
    const attention::Resolved& resolved = std::get<AttentionWork>(job->work).resolved;
    batch.key = {NameOf(resolved.spec.kernel), resolved.spec.dtype};
    prices = costs_.Find(batch.key.first, batch.key.second);
    if (prices == nullptr) return std::nullopt;
    const CostTerms terms = attention::CostTermsOf(resolved.spec, resolved.cu_seqlens_q,
                                                   resolved.cu_seqlens_k, costs_.team());
    attention::AddToBatch(attention::TermCosts(terms, *prices), &batch.us);
  }
  return batch;
}

Predictor::Lesson Predictor::LessonOf(const JobList& jobs, double compute_us) const {
  Lesson lesson;
  if (!(compute_us > 0) || jobs.empty()) return lesson;
  lesson.compute_us_ = compute_us;
  lesson.prices_ = PricesOf(jobs);
  if (lesson.prices_) return lesson;
  lesson.parts_.reserve(jobs.size());
  for (const auto& job : jobs) lesson.parts_.push_back(PartOf(*job));
  return lesson;
}

void Predictor::Learn(const Lesson& lesson) {
  MutexLock lock(mu_);
  if (lesson.prices_) {
    learned_[lesson.prices_->key].Learn(lesson.prices_->us, lesson.compute_us_);
  } else {
    LearnParts(lesson.parts_, lesson.compute_us_);
  }
}

void Predictor::LearnParts(std::span<const Part> parts, double compute_us) {
  double shared_us = 0;
  double own_us = 0;
  for (const Part& part : parts) {
    const double factor = FactorLocked(part.key, part.base);
    shared_us = std::max(shared_us, factor * part.base.batch_us);
    own_us += factor * part.base.own_us;
  }
  const double predicted_us = shared_us + own_us;
  if (!(predicted_us > 0)) return;
  // Requests of one size share a factor; each teaches by its share of the batch.
  const double error = compute_us / predicted_us;
  double all_us = 0;
  for (const Part& part : parts) all_us += part.base.alone_us();
  for (const Part& part : parts) {
    CorrectionsFor(part.key, part.measured)
        .Learn(part.base.alone_us(), error, part.base.alone_us() / all_us);
  }
}

PredictedTime Predictor::Corrected(const Key& key, PredictedTime base) const {
  MutexLock lock(mu_);
  const double factor = FactorLocked(key, base);
  return {.batch_us = base.batch_us * factor, .own_us = base.own_us * factor, .correction = factor};
}

double Predictor::FactorLocked(const Key& key, const PredictedTime& base) const {
  const auto found = corrections_.find(key);
  return found == corrections_.end() ? 1 : found->second.Factor(base.alone_us());
}

TimeCorrections& Predictor::CorrectionsFor(const Key& key, bool measured) {
  const auto found = corrections_.find(key);
  if (found != corrections_.end()) return found->second;
  if (corrections_.size() >= kMostKeys) {
    // The first model's; attention's few keys stay.
    const auto oldest = corrections_.upper_bound({0, KernelName{kKernelCount}, {}});
    if (oldest != corrections_.end()) corrections_.erase(oldest);
  }
  const TimeCorrections fresh = measured ? TimeCorrections(kMeasuredError, kMeasuredTrust)
                                         : TimeCorrections(kAssumedError, kAssumedTrust);
  return corrections_.emplace(key, fresh).first->second;
}

}  // namespace castor
