#include "engine/engine.h"

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/assembly/internal.h"
#include "engine/attention/resolve.h"
#include "engine/automatic/plan.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/forecast/calibration.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/ledger.h"
#include "engine/loop/engine_loop.h"
#include "engine/loop/pools.h"
#include "engine/requests/answer_cache.h"
#include "engine/requests/resolve_encode.h"
#include "engine/requests/staging.h"
#include "engine/residents/residents.h"

namespace castor {
namespace {

constexpr int kCompletionThreads = 2;

// No caller has this name.
constexpr char kLoaderTenant[] = "castor:loader";

LedgerOptions LedgerOptionsOf(const EngineOptions& options) {
  return {.budgets = {.most = {options.max_queued_requests, options.max_queued_tokens,
                               options.max_queued_bytes},
                      .queued_time = options.max_queued_time,
                      .request_time = options.max_request_time},
          .limits = {options.max_batch_tokens, options.max_batch_requests, options.batch_delay},
          .tenants = options.tenants,
          .tokenizer_threads = TokenizerThreads(options.cpu_threads),
          .completion_threads = kCompletionThreads};
}

// Sets what the ledger needs in addition to the request's cost, time and memory.
void SetCall(const CallContext& call, TimePoint now, Job* job) {
  job->tenant = call.tenant;
  job->priority = call.priority;
  job->deadline = call.deadline;
  job->received = call.received.value_or(now);
}

}  // namespace

// The engine behind engine/engine.h: connects the parts of the other folders. engine/DESIGN.md
// walks a request through them.
class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, EngineParts parts);
  ~EngineImpl() override;

  // Opens the device and loads the models. Called once, before anything else.
  absl::Status Start();

  absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) override;
  absl::StatusOr<Ticket> Submit(EncodeRequest request, EncodeCompletion done) override;
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& tenant, int64_t bytes) override {
    return Guarded([&] { return ledger_->Reserve(tenant, bytes); });
  }
  void Cancel(Ticket ticket) override { ledger_->Cancel(ticket); }
  void SetTenants(std::map<std::string, TenantTerms> tenants) override {
    ledger_->SetTenants(std::move(tenants));
  }
  std::shared_ptr<const ModelInfos> models() const override { return residents_.list()->infos(); }
  std::vector<ModelStatus> model_statuses() const override { return residents_.statuses(); }
  ModelCatalogStats catalog_stats() const override { return residents_.stats(); }
  void LoadModel(const std::string& name, const std::string& folder, bool replace,
                 ModelCompletion done) override {
    residents_.Load(name, folder, replace, std::move(done));
  }
  void UnloadModel(const std::string& name, ModelCompletion done) override {
    residents_.Unload(name, std::move(done));
  }
  absl::Status NotLoaded(const std::string& name) const override {
    return residents_.NotLoaded(name);
  }
  absl::Status AwaitModel(const std::string& name, TimePoint deadline,
                          ModelCompletion then) override {
    return residents_.Await(name, deadline, std::move(then));
  }
  EngineInfo info() const override { return info_; }
  const EngineOptions& options() const override { return options_; }
  EngineStats stats() const override;
  Progress progress() const override { return loop_.progress(); }
  bool healthy() const override { return loop_.healthy(); }
  bool Drain(TimePoint deadline) override;

 private:
  absl::StatusOr<Ticket> DoSubmit(AttentionRequest& request, AttentionCompletion& done);
  absl::StatusOr<Ticket> DoSubmit(EncodeRequest& request, EncodeCompletion& done);
  absl::StatusOr<Ticket> DoSubmitTo(ModelUse model, EncodeRequest& request, TimePoint now,
                                    EncodeCompletion& done);
  absl::StatusOr<ModelUse> FindModel(const EncodeRequest& request) const;
  absl::StatusOr<Ticket> EnqueueOrRun(std::unique_ptr<Job> job);
  absl::Status TryOut(const ModelPtr& model);
  void SetEstimate(const Estimate& estimate, Job* job) const;
  absl::Status CheckCall(const CallContext& call, TimePoint now) const;

  const EngineOptions options_;
  EngineParts parts_;  // constant

  // In order of dependency: each may use those before it.
  Counters counters_;
  AnswerCache cache_;
  const std::shared_ptr<Ledger> ledger_;
  Completions completions_;
  Residents residents_;
  EngineLoop loop_;
  FidelitySampling sampling_;
  std::thread deadlines_;

  // Constant after Start.
  bool started_ = false;
  EngineInfo info_;
  attention::PriceOf price_of_;
  std::shared_ptr<HostPool> host_pool_;
  std::optional<Tokenizers> tokenizers_;
};

EngineImpl::EngineImpl(EngineOptions options, EngineParts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      cache_(options_.answer_cache, *parts_.clock),
      ledger_(std::make_shared<Ledger>(LedgerOptionsOf(options_), parts_.clock, counters_)),
      completions_(kCompletionThreads, *ledger_, counters_),
      residents_(options_.catalog, *parts_.clock),
      loop_(*ledger_, counters_, residents_, *parts_.clock),
      sampling_(options_.fidelity_share) {}

EngineImpl::~EngineImpl() {
  if (started_) Drain(TimePoint::max());
  residents_.Stop();
  // Ends before the engine thread, which frees the models: the tokenizer of a request that was
  // withdrawn meanwhile may still hold one, although the request is answered and so drained.
  tokenizers_.reset();
  ledger_->Stop();
  if (deadlines_.joinable()) deadlines_.join();
}

absl::Status EngineImpl::Start() {
  auto status = loop_.Start(parts_.open_device, options_, parts_.warm_up);
  if (!status.ok()) return status;
  host_pool_ = loop_.device().host_pool();
  info_ = DescribeEngine(loop_.device());
  info_.max_device_bytes = ledger_->device_memory().most();
  info_.cost_model = loop_.costs().info;
  info_.warm_up_seconds = loop_.warm_up_seconds();
  price_of_ = parts_.price_of;
  if (!price_of_) {
    price_of_ = [this](const auto&... problem) { return loop_.costs().model.Predict(problem...); };
  }
  counters_.ListKernels(loop_.device().variants());
  for (const ModelInfo& model : *models()) counters_.ListModel(model);
  tokenizers_.emplace(TokenizerThreads(options_.cpu_threads), *host_pool_, *ledger_,
                      loop_.forecast(), *parts_.clock, counters_);
  deadlines_ = std::thread([this] { ledger_->ExpireUntilStopped(); });
  started_ = true;
  residents_.Start({.load =
                        [this](const ModelSource& source) {
                          return castor::LoadModel(loop_.loading_device(), source);
                        },
                    .try_out = [this](const ModelPtr& model) { return TryOut(model); },
                    .on_loaded =
                        [this](const ModelInfo& model) {
                          counters_.ListModel(model);
                          if (options_.on_model_loaded) options_.on_model_loaded(model);
                        },
                    .on_freed =
                        [this](uint64_t number) {
                          for (const uint64_t each : {number, LookupNumber(number)}) {
                            loop_.forecast().Forget(each);
                            cache_.Drop(each);
                          }
                        }});
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
  const auto find_layer = [&](std::string_view name) {
    return residents_.list()->FindCastLayer(name);
  };
  auto resolved =
      attention::Resolve(request, loop_.device().variants(), find_layer, options_.max_sequences);
  if (!resolved.ok()) return resolved.status();

  // Check the cost before computing anything else from the request's sizes.
  auto status = ledger_->CheckAlone(TensorCost(*resolved), request.call.tenant);
  if (!status.ok()) return status;
  auto job = std::make_unique<Job>();
  SetCall(request.call, now, job.get());
  job->operation = Operation::kAttend;
  job->plan = PlanAttention(request, loop_.device().variants(), price_of_, sampling_, &*resolved);
  job->kernel = NameOf(resolved->spec.kernel);
  job->batch_key = BatchKey(resolved->spec);
  job->cost = CostOf(job->plan, *resolved);
  SetEstimate(loop_.forecast().Of(job->plan, *resolved), job.get());
  job->query_tokens = resolved->query_tokens;
  auto& work = job->work.emplace<AttentionWork>();
  work.resolved = *std::move(resolved);
  if (status = ledger_->Admit(*job); !status.ok()) return status;
  if (status = StageAttention(request, *host_pool_, &work); !status.ok()) return status;
  // A request with its own biases shares its batch with no other.
  if (work.resolved.spec.bias.any()) job->batch_key = BatchKey(work.resolved.spec);
  job->done = std::move(done);
  // On the CPU a launch may come from any thread, and short ones use no other. What may have to run
  // again, with a more exact kernel, takes longer.
  const bool offers = request.call.may_run_in_submit && !loop_.device().copies_tensors() &&
                      job->plan.candidates().size() <= 1;
  return offers ? EnqueueOrRun(std::move(job)) : ledger_->Enqueue(std::move(job));
}

// Runs the job on this thread if the engine thread sleeps, or if the job needs no run; delivers its
// answer.
absl::StatusOr<Ticket> EngineImpl::EnqueueOrRun(std::unique_ptr<Job> job) {
  JobList batch;
  const auto ticket = ledger_->Enqueue(std::move(job), &batch);
  if (batch.empty()) return ticket;
  if (batch.front()->needs_run()) batch = loop_.RunInTurn(std::move(batch));
  for (std::unique_ptr<Job>& answered : batch) {
    Deliver(Success(std::move(answered)));
    ledger_->Delivered();
  }
  return ticket;
}

absl::StatusOr<Ticket> EngineImpl::DoSubmit(EncodeRequest& request, EncodeCompletion& done) {
  const TimePoint now = parts_.clock->Now();
  if (auto status = CheckCall(request.call, now); !status.ok()) return status;
  auto model = FindModel(request);
  if (!model.ok()) return model.status();
  return DoSubmitTo(*std::move(model), request, now, done);
}

absl::StatusOr<ModelUse> EngineImpl::FindModel(const EncodeRequest& request) const {
  const std::shared_ptr<const ModelList> list = residents_.list();
  auto model = list->FindEncoder(request.model);
  if (!model.ok()) {
    const bool named = ReasonOf(model.status()) == Reason::kModelNotFound && !request.model.empty();
    return named ? residents_.NotLoaded(request.model) : model.status();
  }
  if (request.generation != 0 && request.generation != (*model)->info.generation) {
    return ModelLoading((*model)->info.name, std::chrono::milliseconds(1));
  }
  return ModelUse(list->RouteOf(*std::move(model), request));
}

absl::StatusOr<Ticket> EngineImpl::DoSubmitTo(ModelUse model, EncodeRequest& request, TimePoint now,
                                              EncodeCompletion& done) {
  auto resolved =
      ResolveEncode(std::move(request), std::move(model), loop_.device().variants(), options_);
  if (!resolved.ok()) return resolved.status();
  auto job = std::make_unique<Job>();
  auto& work = job->work.emplace<EncodeWork>(*std::move(resolved));
  SetCall(work.request.call, now, job.get());
  job->operation = Operation::kEncode;
  job->kernel = NameOf(work.kernel);
  const bool hides = work.prompt != nullptr && work.prompt->hides_padding;
  job->batch_key = BatchKey(work.model->number, work.kernel, hides);
  job->cost = EstimateEncodeCost(work);
  if (work.request.runs()) {
    const Forecast& forecast = loop_.forecast();
    SetEstimate(forecast.Of(work, forecast.ExpectedOffsets(work)), job.get());
  }
  if (auto status = ledger_->Admit(*job); !status.ok()) return status;
  // The loader measures runs.
  if (options_.answer_cache > 0 && MayBeCached(work) && job->tenant != kLoaderTenant) {
    work.cache = {&cache_, counters_.CacheOf(*job), TenantOfQueue(job->tenant)};
  }
  job->done = std::move(done);
  const bool is_short = work.request.call.may_run_in_submit && Tokenizers::IsShort(work);
  if (work.tokenizes() && !is_short) return tokenizers_->Push(std::move(job));
  if (auto status = tokenizers_->Prepare(job.get()); !status.ok()) return status;
  return is_short ? EnqueueOrRun(std::move(job)) : ledger_->Enqueue(std::move(job));
}

// Runs a loaded model as a low-priority tenant of the loader's own does, so that requests go first
// and may preempt it. Where the queue has no room, the model is served with assumed prices.
absl::Status EngineImpl::TryOut(const ModelPtr& model) {
  if (model->encoder == nullptr || !parts_.warm_up) return absl::OkStatus();
  const RunRequest run = [&](EncodeRequest request) -> absl::StatusOr<double> {
    request.call.tenant = kLoaderTenant;
    request.call.priority = Priority::kLow;
    std::promise<absl::StatusOr<double>> ran;
    EncodeCompletion done = [&ran](absl::StatusOr<EncodeResult> result) {
      ran.set_value(result.ok() ? absl::StatusOr<double>(result->report.timing.compute_us)
                                : result.status());
    };
    const auto ticket =
        Guarded([&] { return DoSubmitTo(ModelUse(model), request, parts_.clock->Now(), done); });
    if (!ticket.ok()) return ticket.status();
    return ran.get_future().get();
  };
  const auto measure = [&]() -> absl::Status {
    if (auto us = run(ShortRequest(model->info)); !us.ok()) return us.status();
    const auto prices = MeasureModel(
        *model, loop_.device().info().threads, [] { return true; }, run);
    if (prices.ok() && *prices) loop_.forecast().SetPrices(model->number, **prices);
    return prices.status();
  };
  const absl::Status status = measure();
  const Reason reason = ReasonOf(status);
  // It is no fault of the model if the queue has no room, or if it takes no such request.
  const bool refused = reason == Reason::kQueueFull || reason == Reason::kTooLarge ||
                       reason == Reason::kDeadlineExceeded || reason == Reason::kInvalidField;
  return refused ? absl::OkStatus() : status;
}

void EngineImpl::SetEstimate(const Estimate& estimate, Job* job) const {
  job->memory = estimate.memory;
  job->predicted = parts_.predict ? parts_.predict(job->cost.tokens) : estimate.time;
}

// Checks that do not depend on the request's contents.
absl::Status EngineImpl::CheckCall(const CallContext& call, TimePoint now) const {
  if (!healthy()) return MakeError(Reason::kInternal, "the device has failed");
  if (call.deadline && *call.deadline <= now) {
    return MakeError(Reason::kDeadlineExceeded, "the deadline had passed when the request arrived");
  }
  return absl::OkStatus();
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  counters_.Fill(&stats);
  stats.tenant_seconds = ledger_->tenant_seconds();
  stats.load = ledger_->load();
  stats.memory = loop_.device().memory();
  std::tie(stats.memory.runs, stats.memory.runs_peak) = ledger_->run_memory();
  const HostPoolStats host = host_pool_->stats();
  stats.memory.host_in_use_bytes = host.in_use_bytes;
  stats.memory.host_cached_bytes = host.cached_bytes;
  stats.memory.host_peak_bytes = host.peak_bytes;
  stats.device_healthy = healthy();
  return stats;
}

bool EngineImpl::Drain(TimePoint deadline) {
  residents_.Drain();
  ledger_->StartDraining();
  if (ledger_->WaitUntilAnswered(deadline)) return true;
  ledger_->RefuseWaiting();
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
