#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/assembly/check_options.h"
#include "engine/assembly/engine_impl.h"
#include "engine/assembly/engine_info.h"
#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/encoder/text/prompts.h"
#include "engine/jobs/batch_key.h"
#include "engine/jobs/encode_kernel.h"
#include "engine/jobs/staging.h"

namespace castor {
namespace {

Budgets BudgetsOf(const EngineOptions& options) {
  return {
      .most = {options.max_queued_requests, options.max_queued_tokens, options.max_queued_bytes},
      .queued_time = options.max_queued_time,
      .request_time = options.max_request_time};
}

// What a request asks for, beside its cost and time.
Claim ClaimOf(const CallContext& call, std::string batch_key) {
  Claim claim;
  claim.batch_key = std::move(batch_key);
  claim.tenant = call.tenant;
  claim.priority = call.priority;
  claim.deadline = call.deadline;
  return claim;
}

// What the job keeps of its claim.
void Keep(Claim claim, Reservation reservation, Job* job) {
  job->tenant = std::move(claim.tenant);
  job->batch_key = std::move(claim.batch_key);
  job->predicted = claim.time;
  job->memory = claim.memory;
  job->reservation = std::move(reservation);
}

// Of texts, as many tokens as are expected.
std::vector<int32_t> ExpectedOffsets(const Forecast& forecast, const LoadedModel& model,
                                     const EncodeRequest& request) {
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    const Prompt* const prompt = encoder::PromptOf(request, model.info.prompts);
    return forecast.ExpectedOffsets(request.call.tenant, model, *texts,
                                    prompt == nullptr ? 0 : prompt->text.size());
  }
  const auto* tokens = std::get_if<TokenInput>(&request.input);
  const auto& lengths =
      tokens != nullptr ? tokens->lengths : std::get<EmbeddingInput>(request.input).lengths;
  const int64_t all = tokens != nullptr ? static_cast<int64_t>(tokens->ids.size())
                                        : std::get<EmbeddingInput>(request.input).values.shape[0];
  std::vector<int32_t> offsets = {0};
  const auto add = [&](int64_t length) {
    offsets.push_back(offsets.back() +
                      static_cast<int32_t>(std::min(length, model.info.max_tokens)));
  };
  if (lengths.empty()) add(all);
  for (const int64_t length : lengths) add(length);
  return offsets;
}

}  // namespace

EngineImpl::EngineImpl(EngineOptions options, EngineParts parts)
    : options_(std::move(options)),
      tenants_(std::make_shared<TenantTable>(options_.tenants)),
      parts_(std::move(parts)),
      admission_(std::make_shared<Admission>(BudgetsOf(options_), parts_.clock, tenants_)),
      outstanding_(*parts_.clock),
      completions_(options_.completion_threads, tenants_, counters_, outstanding_),
      scheduler_({options_.max_batch_tokens, options_.max_batch_requests, options_.batch_delay},
                 tenants_, *parts_.clock, completions_, outstanding_, counters_),
      loop_(scheduler_, *admission_, completions_, counters_, *parts_.clock, *parts_.models),
      sampling_(options_.fidelity_share, options_.fidelity_sample_rows) {}

EngineImpl::~EngineImpl() {
  if (started_) Drain(TimePoint::max());
  // Before the engine thread stops, so that it frees the models: a request that was withdrawn while
  // it was being tokenized is answered, and so drained, but its tokenizer still holds the model.
  tokenizers_.reset();
  scheduler_.Stop();
  if (deadlines_.joinable()) deadlines_.join();
}

absl::Status EngineImpl::Start() {
  auto status = loop_.Start(parts_.open_device, options_, parts_.warm_up);
  if (!status.ok()) return status;
  host_pool_ = loop_.device().host_pool();
  info_ = DescribeEngine(loop_.device());
  info_.max_device_bytes = admission_->device_memory()->most();
  info_.cost_model = loop_.costs().info;
  info_.warm_up_seconds = loop_.warm_up_seconds();
  price_of_ = parts_.price_of;
  if (!price_of_) {
    price_of_ = [this](const auto&... problem) { return loop_.costs().model.Predict(problem...); };
  }
  counters_.ListWork(loop_.device().variants(), info().models);
  tokenizers_.emplace(options_.tokenizer_threads, tenants_, *host_pool_, scheduler_,
                      loop_.forecast(), *parts_.clock, counters_);
  deadlines_ = std::thread([this] { scheduler_.ExpireUntilStopped(); });
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Ticket> EngineImpl::Submit(AttentionRequest request, AttentionCompletion done) {
  auto ticket = Guarded([&] { return DoSubmit(request, done); });
  if (!ticket.ok()) counters_.Refused(ticket.status());
  return ticket;
}

absl::StatusOr<Ticket> EngineImpl::Submit(EncodeRequest request, EncodeCompletion done) {
  auto ticket = Guarded([&] { return DoSubmit(request, done); });
  if (!ticket.ok()) counters_.Refused(ticket.status());
  return ticket;
}

absl::StatusOr<Ticket> EngineImpl::DoSubmit(AttentionRequest& request, AttentionCompletion& done) {
  const TimePoint now = parts_.clock->Now();
  if (auto status = CheckCall(request.call, now); !status.ok()) return status;
  auto resolved =
      attention::Resolve(request, loop_.device().variants(),
                         parts_.models->Snapshot()->cast_layers(), options_.max_sequences);
  if (!resolved.ok()) return resolved.status();

  // Before anything is computed from the request's sizes.
  auto status = admission_->CheckAlone(TensorCost(*resolved), request.call.tenant);
  if (!status.ok()) return status;
  Plan plan = PlanAttention(request, loop_.device().variants(), price_of_, sampling_, &*resolved);
  Claim claim = ClaimOf(request.call, BatchKey(resolved->spec));
  claim.cost = CostOf(plan, *resolved);
  const Estimate estimate = loop_.forecast().Of(plan, *resolved);
  claim.memory = estimate.memory;
  claim.time = parts_.predict ? parts_.predict(claim.cost.tokens) : estimate.time;
  auto reservation = admission_->Reserve(claim);
  if (!reservation.ok()) return reservation.status();

  auto job = StageAttention(request, *std::move(resolved), *host_pool_);
  if (!job.ok()) return job.status();
  Keep(std::move(claim), *std::move(reservation), job->get());
  (*job)->plan = std::move(plan);
  (*job)->received = request.call.received.value_or(now);
  (*job)->done = std::move(done);
  return scheduler_.Add(*std::move(job));
}

absl::StatusOr<Ticket> EngineImpl::DoSubmit(EncodeRequest& request, EncodeCompletion& done) {
  const TimePoint now = parts_.clock->Now();
  if (auto status = CheckCall(request.call, now); !status.ok()) return status;
  auto model = parts_.models->Snapshot()->FindEncoder(request.model);
  if (!model.ok()) return model.status();
  const ModelInfo& info = (*model)->info;
  const encoder::Model& encoder = *(*model)->encoder;
  auto status = encoder.CheckInput(request, options_.max_sequences, options_.max_text_bytes);
  if (!status.ok()) return status;
  auto kernel = ChooseEncodeKernel(request, info);
  if (!kernel.ok()) return kernel.status();
  status = encoder::CheckOption(encoder, *kernel, loop_.device().variants());
  if (!status.ok()) return status;

  const Cost cost = EstimateEncodeCost(request, info, encoder.EstimateTokens(request));
  const bool brings_text = std::holds_alternative<TextInput>(request.input);
  const std::vector<int32_t> offsets = ExpectedOffsets(loop_.forecast(), **model, request);
  Claim claim = ClaimOf(request.call, BatchKey((*model)->generation, *kernel));
  claim.cost = cost;
  const Estimate estimate = loop_.forecast().Of(**model, *kernel, request, offsets);
  claim.memory = estimate.memory;
  claim.time = parts_.predict ? parts_.predict(claim.cost.tokens) : estimate.time;
  auto reservation = admission_->Reserve(claim);
  if (!reservation.ok()) return reservation.status();

  auto job = OpenEncode(std::move(request), *std::move(model), *std::move(kernel));
  Keep(std::move(claim), *std::move(reservation), job.get());
  job->received = std::get<EncodeWork>(job->work).request.call.received.value_or(now);
  job->done = std::move(done);
  if (!brings_text) {
    const auto prepared = PrepareEncode({}, job.get());
    if (!prepared.ok()) return prepared.status();
    status = StageEncode(*host_pool_, job.get());
    if (!status.ok()) return status;
    return scheduler_.Add(std::move(job));
  }
  const auto ticket = scheduler_.Open(*job);
  if (ticket.ok()) tokenizers_->Push(std::move(job));
  return ticket;
}

// The checks that do not depend on the request's contents.
absl::Status EngineImpl::CheckCall(const CallContext& call, TimePoint now) const {
  if (!healthy()) return MakeError(Reason::kInternal, "the device has failed");
  if (auto status = scheduler_.CheckOpen(); !status.ok()) return status;
  if (call.deadline && *call.deadline <= now) {
    return MakeError(Reason::kDeadlineExceeded, "the deadline had passed when the request arrived");
  }
  return absl::OkStatus();
}

EngineInfo EngineImpl::info() const {
  EngineInfo info = info_;
  info.models = DescribeModels(*parts_.models->Snapshot());
  return info;
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  counters_.Fill(&stats);
  const AdmissionLoad load = admission_->load();
  const Cost& in_use = load.in_use;
  stats.load.queued_requests = scheduler_.waiting();
  stats.load.inflight_requests = in_use.requests;
  stats.load.inflight_tokens = in_use.tokens;
  stats.load.inflight_bytes = in_use.bytes;
  stats.load.max_requests = options_.max_queued_requests;
  stats.load.max_tokens = options_.max_queued_tokens;
  stats.load.max_bytes = options_.max_queued_bytes;
  const DeviceBudget& device = *admission_->device_memory();
  stats.load.device_bytes = device.weights() + admission_->runs().held_bytes();
  stats.load.max_device_bytes = device.most();
  stats.load.queued_seconds = load.queued_us * 1e-6;
  stats.load.max_queued_seconds = std::chrono::duration<double>(options_.max_queued_time).count();
  const TimePoint now = parts_.clock->Now();
  stats.load.oldest_seconds = std::max(0.0, Microseconds(scheduler_.oldest(), now) * 1e-6);
  stats.load.saturation = load.saturation;
  stats.memory = loop_.device().memory();
  const ActiveRuns::Memory runs = admission_->runs().memory();
  stats.memory.runs = runs.now;
  stats.memory.runs_peak = runs.peak;
  const HostPoolStats host = host_pool_->stats();
  stats.memory.host_in_use_bytes = host.in_use_bytes;
  stats.memory.host_cached_bytes = host.cached_bytes;
  stats.memory.host_peak_bytes = host.peak_bytes;
  stats.device_healthy = healthy();
  return stats;
}

bool EngineImpl::Drain(TimePoint deadline) {
  scheduler_.StartDraining();
  if (outstanding_.WaitForZero(deadline)) return true;
  scheduler_.RefuseWaiting();
  return false;
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithParts(EngineOptions options,
                                                              EngineParts parts) {
  if (auto status = CheckOptions(options); !status.ok()) return status;
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<Engine>> {
    auto engine = std::make_unique<EngineImpl>(std::move(options), std::move(parts));
    if (auto status = engine->Start(); !status.ok()) return status;
    return engine;
  });
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(EngineOptions options) {
  EngineParts parts;
  parts.open_device = OpenDevice;
  parts.warm_up = true;
  return CreateEngineWithParts(std::move(options), std::move(parts));
}

}  // namespace castor
