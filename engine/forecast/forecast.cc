#include "engine/forecast/forecast.h"

#include <algorithm>
#include <cmath>

#include "engine/automatic/candidates.h"
#include "engine/encoder/model.h"
#include "engine/encoder/text/prompts.h"
#include "engine/kernel_table.h"
#include "engine/ledger/tenants.h"

namespace castor {
namespace {

// Measured prices are nearly right, and worth some runs; assumed ones say next to nothing.
constexpr TimeFactors::Prior kMeasured = {.max_factor = 4, .runs = 3};
constexpr TimeFactors::Prior kAssumed = {.max_factor = 1000, .runs = 0};

// For English in WordPiece; corrected by the texts that a model tokenizes.
constexpr double kUsualBytesPerToken = 4.5;
constexpr double kSpecialTokens = 2;

PredictedTime Times(const PredictedTime& time, double factor) {
  return {.batch_us = time.batch_us * factor,
          .own_us = time.own_us * factor,
          .correction = time.correction * factor};
}

// To each text, by the tokenizer or by the model's text around pairs.
double AddedTokens(const EncodeWork& work) {
  return kSpecialTokens + static_cast<double>(work.model->info.template_tokens);
}

// The bytes that become the tokens of text `i`: its own, its pair's and its prompt's.
double BytesOf(const EncodeWork& work, size_t i) {
  const auto& input = std::get<TextInput>(work.request.input);
  const size_t pair = i < input.pairs.size() ? input.pairs[i].size() : 0;
  const size_t prompt = encoder::PromptTextOf(work.request, work.model->info.prompts, i).size();
  return static_cast<double>(prompt + input.texts[i].size() + pair);
}

}  // namespace

PredictedTime Forecast::Base(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                             std::span<const int32_t> cu_seqlens_k,
                             std::span<const attention::Place> places) const {
  return costs_.Of(spec, cu_seqlens_q, cu_seqlens_k, places);
}

PredictedTime Forecast::Base(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const {
  const LoadedModel& model = *work.model;
  const Kernel& kernel = work.kernel;
  const std::vector<encoder::AttentionLayers> layers = model.encoder->attention(kernel);
  const std::optional<EncoderCosts> measured = PricesOf(model.number);
  const EncoderCosts prices = measured ? *measured : AssumedCosts(model.info, costs_.workers());
  // A model's measured prices include the pairs of its own kernel.
  const bool own_kernel = NameOf(kernel) == NameOf(model.info.kernel);
  PredictedTime base = TimeOf(EncoderTermsOf(cu_seqlens, layers), prices, own_kernel);
  base.own_us += ReadOutUs(work.request, model.info, cu_seqlens, costs_.workers());
  if (own_kernel) return base;
  for (const encoder::AttentionLayers& alike : layers) {
    base.own_us +=
        static_cast<double>(alike.layers) * Base(alike.spec, cu_seqlens, cu_seqlens).alone_us();
  }
  return base;
}

Estimate Forecast::Of(const Plan& plan, const attention::Resolved& resolved) const {
  attention::Spec spec = resolved.spec;
  const std::vector<int32_t>& queries = resolved.cu_seqlens_q;
  const std::vector<int32_t>& keys = resolved.cu_seqlens_k;
  Estimate estimate = {
      Corrected({0, NameOf(spec.kernel), spec.dtype}, Base(spec, queries, keys, resolved.places)),
      memory_.Of(plan, resolved)};
  if (plan.probe_rows() == 0 || !attention::IsApproximate(NameOf(spec.kernel))) return estimate;
  // The probe computes exact attention for some queries of each sequence.
  spec.kernel = Vanilla{};
  const PredictedTime probe =
      Corrected({0, KernelName::kVanilla, spec.dtype},
                Base(spec, attention::OffsetsOfRows(queries, plan.probe_rows()), keys));
  estimate.time.batch_us += probe.batch_us;
  estimate.time.own_us += probe.own_us;
  return estimate;
}

Estimate Forecast::Of(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const {
  return {Corrected({work.model->number, NameOf(work.kernel), {}}, Base(work, cu_seqlens)),
          memory_.Of(*work.model, work.kernel, work.request, cu_seqlens)};
}

// An encoder runs one kernel, so its estimate stays.
Estimate Forecast::Of(const Job& job) const {
  if (const auto* work = std::get_if<AttentionWork>(&job.work)) return Of(job.plan, work->resolved);
  return {job.predicted, job.memory};
}

std::optional<EncoderCosts> Forecast::PricesOf(uint64_t model) const {
  MutexLock lock(mu_);
  const auto found = encoders_.find(model);
  return found == encoders_.end() ? std::nullopt : std::optional(found->second);
}

void Forecast::SetPrices(uint64_t model, const EncoderCosts& prices) {
  MutexLock lock(mu_);
  encoders_.insert_or_assign(model, prices);
}

void Forecast::Forget(uint64_t model) {
  MutexLock lock(mu_);
  encoders_.erase(model);
  std::erase_if(factors_, [&](const auto& entry) { return entry.first.model == model; });
  for (auto& [tenant, learned] : tenants_) learned.bytes_per_token.erase(model);
}

Forecast::BatchMember Forecast::MemberOf(const Job& job) const {
  if (const auto* work = std::get_if<AttentionWork>(&job.work)) {
    const attention::Resolved& resolved = work->resolved;
    const FactorKey key = {0, NameOf(resolved.spec.kernel), resolved.spec.dtype};
    return {
        .key = key,
        .base = Base(resolved.spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k, resolved.places),
        .measured = costs_.Knows(key.kernel, key.dtype)};
  }
  const auto& work = std::get<EncodeWork>(job.work);
  return {.key = {work.model->number, NameOf(work.kernel), {}},
          .base = Times(job.predicted, 1 / job.predicted.correction),
          .measured = PricesOf(work.model->number).has_value()};
}

Forecast::RunSample Forecast::SampleOf(const JobList& jobs, double compute_us) const {
  RunSample sample;
  if (!(compute_us > 0)) return sample;
  sample.compute_us_ = compute_us;
  sample.members_.reserve(jobs.size());
  for (const auto& job : jobs) sample.members_.push_back(MemberOf(*job));
  return sample;
}

void Forecast::Learn(const RunSample& sample) {
  MutexLock lock(mu_);
  double shared_us = 0;
  double own_us = 0;
  double all_us = 0;
  for (const BatchMember& member : sample.members_) {
    const double factor = FactorLocked(member);
    shared_us = std::max(shared_us, factor * member.base.batch_us);
    own_us += factor * member.base.own_us;
    all_us += member.base.alone_us();
  }
  const double predicted_us = shared_us + own_us;
  if (!(predicted_us > 0)) return;
  // Requests of one size share a factor; each counts by its share of the batch.
  for (const BatchMember& member : sample.members_) {
    TimeFactors& factors = FactorsOf(member);
    const double base_us = member.base.alone_us();
    factors.Learn(base_us, factors.Of(base_us) * sample.compute_us_ / predicted_us,
                  base_us / all_us);
  }
}

PredictedTime Forecast::Corrected(const FactorKey& key, PredictedTime base) const {
  MutexLock lock(mu_);
  return Times(base, FactorLocked({.key = key, .base = base}));
}

double Forecast::FactorLocked(const BatchMember& member) const {
  const auto found = factors_.find(member.key);
  return found == factors_.end() ? 1 : found->second.Of(member.base.alone_us());
}

TimeFactors& Forecast::FactorsOf(const BatchMember& member) {
  return factors_.try_emplace(member.key, member.measured ? kMeasured : kAssumed).first->second;
}

std::vector<int32_t> Forecast::ExpectedOffsets(const EncodeWork& work) const {
  std::vector<int32_t> offsets = {0};
  const auto add = [&](auto tokens) {
    const auto most = static_cast<decltype(tokens)>(work.model->info.max_tokens);
    offsets.push_back(offsets.back() + static_cast<int32_t>(std::min(tokens, most)));
  };
  if (const auto* texts = std::get_if<TextInput>(&work.request.input)) {
    double ratio = kUsualBytesPerToken;
    {
      MutexLock lock(mu_);
      if (const auto of = tenants_.find(work.request.call.tenant); of != tenants_.end()) {
        const auto learned = of->second.bytes_per_token.find(work.model->number);
        if (learned != of->second.bytes_per_token.end()) ratio = learned->second;
      }
    }
    offsets.reserve(texts->texts.size() + 1);
    for (size_t i = 0; i < texts->texts.size(); ++i) {
      add(AddedTokens(work) + BytesOf(work, i) / ratio);
    }
    return offsets;
  }
  const auto* tokens = std::get_if<TokenInput>(&work.request.input);
  const auto* embeddings = std::get_if<EmbeddingInput>(&work.request.input);
  const auto& lengths = tokens != nullptr ? tokens->lengths : embeddings->lengths;
  for (const int64_t length : lengths) add(length);
  if (lengths.empty() && tokens != nullptr) add(static_cast<int64_t>(tokens->ids.size()));
  if (lengths.empty() && tokens == nullptr) add(embeddings->values.shape[0]);
  return offsets;
}

void Forecast::LearnTexts(const EncodeWork& work) {
  const encoder::Prepared& prepared = work.prepared;
  double bytes = 0;
  double tokens = 0;
  for (size_t i = 0; i < prepared.truncated.size(); ++i) {
    if (prepared.truncated[i]) continue;  // the length of the whole text is not known
    const Prompt* const prompt = encoder::PromptOf(work.request, work.model->info.prompts, i);
    if (prompt != nullptr && prompt->padded_to > 0) continue;  // padding has no text
    bytes += BytesOf(work, i);
    tokens += prepared.cu_seqlens[i + 1] - prepared.cu_seqlens[i] - AddedTokens(work);
  }
  if (bytes <= 0 || tokens <= 0) return;
  // A long request has more weight than a word.
  constexpr double kMinStep = 0.02;
  constexpr double kHalfStepTokens = 500;
  const double step = std::max(kMinStep, tokens / (tokens + kHalfStepTokens));
  MutexLock lock(mu_);
  double& ratio = BytesPerToken(work.request.call.tenant, work.model->number);
  ratio *= std::pow(bytes / tokens / ratio, step);
}

double& Forecast::BytesPerToken(const std::string& tenant, uint64_t model) {
  if (tenants_.size() >= Tenants::kMany && !tenants_.contains(tenant)) {
    tenants_.erase(std::min_element(
        tenants_.begin(), tenants_.end(),
        [](const auto& a, const auto& b) { return a.second.learned < b.second.learned; }));
  }
  Tenant& mine = tenants_[tenant];
  mine.learned = ++text_samples_;
  return mine.bytes_per_token.try_emplace(model, kUsualBytesPerToken).first->second;
}

}  // namespace castor
