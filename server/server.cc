#include "server/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/encoder.grpc.pb.h"
#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "castor/v1/shared_memory.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/auth/caller_authorizer.h"
#include "server/logging.h"
#include "server/options/flag_values.h"
#include "server/services/services.h"
#include "server/tls/certificates.h"
#include "server/transport/listener.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// New calls are refused until none has come for this long. A caller that has just been answered
// sends its next call a moment later, and should learn that the server stops.
constexpr milliseconds kQuiet{250};

// For a new connection to make its first call.
constexpr milliseconds kFirstCall{60'000};

// The longest wait for that, for callers that never stop calling.
constexpr milliseconds kMaxUnrest{2000};

// For callers to take the last bytes of their answers, whatever the deadline.
constexpr milliseconds kTake{2000};

// For callers to hear that they should leave, and for the calls that were on their way.
constexpr milliseconds kLeave{1000};

// They parse requests and write answers; a connection is served by one at a time.
constexpr int kHttpThreads = 2;

// After which health knows that a model has come or gone.
constexpr milliseconds kModelWatch{200};

// For the last spans to reach their collector.
constexpr milliseconds kTraceFlush{3000};

// The descriptors that the server needs for itself, models included, and some to spare for callers.
// With fewer, libraries abort in odd places.
constexpr rlim_t kMinDescriptors = 32;

std::vector<std::string> HealthNames(const Protocols& protocols, const tei::Models& tei) {
  std::vector<std::string> names = {"",
                                    std::string(kReadiness),
                                    v1::AttentionService::service_full_name(),
                                    v1::EncoderService::service_full_name(),
                                    v1::ModelService::service_full_name(),
                                    v1::ServerService::service_full_name(),
                                    v1::SharedMemoryService::service_full_name()};
  if (protocols.oip) names.push_back(inference::GRPCInferenceService::service_full_name());
  if (protocols.tei) {
    for (std::string& name : tei.Services()) names.push_back(std::move(name));
  }
  return names;
}

// One line that says what the automatic kernel's choice rests on.
void LogCostModel(const CostModelInfo& model) {
  if (!model.note.empty()) LogWarning("cost model", {{"note", model.note}, {"file", model.file}});
  if (model.source == CostModelInfo::Source::kNone) return;
  std::string examples;
  for (const CostModelInfo::Prediction& example : model.examples) {
    examples += (examples.empty() ? "" : ", ") + std::string(NameOf(example.kernel)) + " " +
                std::to_string(std::llround(example.us));
  }
  const bool read = model.source == CostModelInfo::Source::kFile;
  LogInfo("cost model", {{"source", read ? "file" : "measured"},
                         {"seconds", model.seconds},
                         {"file", model.file},
                         {"us_at_4096_tokens", examples}});
}

// The model's default use, in words. It must have an output.
const char* HeadOf(const ModelInfo& info) {
  const EncodeOutput own = info.outputs.front();
  if (own == EncodeOutput::kPooled) return "embeddings";
  if (own == EncodeOutput::kTokenEmbeddings) return "late interaction";
  if (own == EncodeOutput::kSparse) return "sparse embeddings";
  if (info.token_labels) return "token classifier";
  return info.labels.size() == 1 ? "reranker" : "classifier";
}

// Logs a loaded model: its path, sizes and defaults.
void LogModel(const ModelInfo& info) {
  const LogValue none = LogValue::IfAny("");
  const bool encodes = !info.outputs.empty();  // a file of CAST layers does not
  const bool pools =
      std::count(info.outputs.begin(), info.outputs.end(), EncodeOutput::kPooled) > 0;
  std::string outputs;
  v1::Model model;
  Describe(info, &model);
  for (const int output : model.outputs()) {
    const std::string& name = v1::EncodeOutput_Name(static_cast<v1::EncodeOutput>(output));
    outputs.append(outputs.empty() ? "" : ", ").append(name);
  }
  std::string prompts;
  for (const Prompt& prompt : info.prompts.all) {
    prompts.append(prompts.empty() ? "" : ", ").append(prompt.name);
  }
  LogInfo("model loaded",
          {{"model", info.name},
           {"path", info.directory},
           {"family", info.family},
           {"dtype", info.int8.has_value() ? "INT8" : NameOf(info.dtype)},
           {"bytes", info.weight_bytes},
           {"seconds", std::round(info.load_seconds * 1e3) / 1e3},
           {"max_tokens", encodes ? LogValue(info.max_tokens) : none},
           {"pooling", pools ? LogValue(v1::Pooling_Name(model.pooling())) : none},
           {"normalize", pools ? LogValue(info.normalize) : none},
           {"head", encodes ? LogValue(HeadOf(info)) : none},
           {"outputs", LogValue::IfAny(outputs)},
           {"alias_of", LogValue::IfAny(info.alias_of)},
           {"tasks", LogValue::IfAny(absl::StrJoin(info.tasks, ", "))},
           {"prompts", LogValue::IfAny(prompts)},
           {"default_prompt", LogValue::IfAny(info.prompts.default_name)},
           {"mean_cosine_to_float32", info.int8 ? LogValue(info.int8->mean_cosine) : none},
           {"least_cosine_to_float32", info.int8 ? LogValue(info.int8->least_cosine) : none}});
}

// "mutual TLS, callers", and so on.
std::string SecurityOf(const AccessOptions& access) {
  const std::string transport = !access.tls.on()               ? "plaintext"
                                : access.tls.client_ca.empty() ? "TLS"
                                                               : "mutual TLS";
  return access.callers.empty() ? transport : transport + ", callers by name";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options,
                                                       std::unique_ptr<Engine> engine,
                                                       std::unique_ptr<Authorizer> authorizer) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kMinDescriptors) {
    return absl::FailedPreconditionError(
        "too few file descriptors: ulimit -n is " + std::to_string(files.rlim_cur) +
        ", but the server needs " + std::to_string(kMinDescriptors) +
        " plus one for each connection");
  }
  for (const ModelSource& model : options.engine.models) {
    if (!options.protocols.oip && options.http.listen.empty()) continue;
    if (model.name != oip::kAttentionModel) continue;
    return absl::InvalidArgumentError("--model " + model.name +
                                      ": the Open Inference Protocol has attention itself under "
                                      "that name; give the model another, or leave oip out of "
                                      "--protocols and --http-listen off");
  }
  absl::StatusOr<Access> access = Access::Open(options.access);
  if (!access.ok()) return access.status();
  if (engine == nullptr) {
    options.engine.on_model_loaded = LogModel;
    absl::StatusOr<std::unique_ptr<Engine>> created = CreateEngine(options.engine);
    if (!created.ok()) return created.status();
    engine = *std::move(created);
  }
  return std::unique_ptr<Server>(
      new Server(std::move(options), *std::move(access), std::move(engine), std::move(authorizer)));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      std::unique_ptr<Engine> engine,
                                                      std::unique_ptr<Authorizer> authorizer) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      Create(std::move(options), std::move(engine), std::move(authorizer));
  if (!server.ok()) return server;
  if (absl::Status listening = (*server)->Listen(); !listening.ok()) return listening;
  return server;
}

Server::Server(ServerOptions options, Access access, std::unique_ptr<Engine> engine,
               std::unique_ptr<Authorizer> authorizer)
    : options_(WithTransportLimits(std::move(options))),
      access_(std::move(access)),
      engine_(std::move(engine)),
      metrics_(*engine_),
      rejections_(metrics_.access()),
      authorizer_(authorizer != nullptr ? std::move(authorizer) : MakeAuthorizer()),
      tracer_(metrics_.traces()),
      shared_memory_(options_.shared_memory ? options_.max_shared_memory_regions : 0,
                     options_.access.identifies_callers()),
      decoding_(engine_->options(), DecodingBytes(options_)),
      connections_({.total = options_.max_connections,
                    .per_host = options_.max_connections_per_host,
                    .new_connections = options_.max_new_connections,
                    .first_call = kFirstCall},
                   &metrics_),
      calls_({options_.max_calls, options_.max_concurrent_streams, kMaxMetadataBytes,
              options_.transfer_timeout},
             connections_, metrics_),
      catalogue_(*engine_),
      tei_models_(*engine_, options_.tei_model),
      health_(HealthNames(options_.protocols, tei_models_)),
      health_service_(health_, calls_, {CallTable::Kind::kHealth, CallTable::Kind::kHealth},
                      *authorizer_),
      context_{*engine_,
               lifecycle_,
               metrics_,
               shared_memory_,
               decoding_,
               calls_,
               streams_,
               *authorizer_,
               options_.max_deadline,
               [this] { OnEngineFault(); },
               &tracer_,
               MakeLoadReports()},
      attention_(context_),
      encoder_(context_),
      models_(context_),
      info_(context_, options_.max_message_bytes, metrics_address_),
      regions_(context_) {}

std::vector<grpc::Service*> Server::MakeServices() {
  std::vector<MessageService*> services = {&health_service_, &attention_, &encoder_,
                                           &models_,         &info_,      &regions_};
  if (options_.protocols.oip) services.push_back(&oip_.emplace(context_, catalogue_));
  if (options_.protocols.tei) services.push_back(&tei_.emplace(context_, tei_models_));
  if (options_.reflection) {
    std::vector<std::string> names;
    for (const MessageService* service : services) {
      names.insert(names.end(), service->names().begin(), service->names().end());
    }
    services.push_back(&reflection_.emplace(std::move(names), context_));
  }
  return {services.begin(), services.end()};
}

std::unique_ptr<Authorizer> Server::MakeAuthorizer() {
  if (!options_.access.identifies_callers()) return std::make_unique<OpenToAll>();
  return std::make_unique<CallerAuthorizer>(access_.callers.get(), rejections_);
}

LoadReports* Server::MakeLoadReports() {
  if (!options_.load_reports) return nullptr;
  return &load_reports_.emplace([this] { return LoadOf(engine_->stats()); }, steady_clock::now());
}

absl::Status Server::StartMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  MetricsAccess access;
  if (options_.access.metrics_tls) access.certificates = access_.certificates.get();
  if (options_.access.metrics_callers) {
    const auto scrapers =
        std::make_shared<const CallerAuthorizer>(access_.callers.get(), rejections_);
    access.authorize = [scrapers](std::string_view authorization, std::string_view peer) {
      return scrapers->AuthorizeScrape(authorization, peer);
    };
  }
  access.tls_min_version = options_.access.tls_min_version;
  auto endpoint = MetricsEndpoint::Start(
      options_.metrics_listen, [this] { return metrics_.Page(); }, std::move(access), periodic_);
  if (!endpoint.ok()) return endpoint.status();
  metrics_endpoint_ = *std::move(endpoint);
  metrics_address_ = WithPort(options_.metrics_listen, metrics_port());
  return absl::OkStatus();
}

// Its connections count with gRPC's, whose listener watches them.
absl::Status Server::StartHttp() {
  if (options_.http.listen.empty()) return absl::OkStatus();
  door_.emplace(http::Door{
      .services = context_,
      .catalogue = catalogue_,
      .ready =
          [this] { return health_.StatusOf("") == grpc::health::v1::HealthCheckResponse::SERVING; },
      .default_model = options_.tei_model,
      // A body that is not whole counts as gathered, of which the engine allows so much.
      .max_body_bytes =
          std::min(options_.max_message_bytes, engine_->options().max_queued_bytes / 16 * 3 / 4),
      .allow_origin = options_.http.allow_origin,
      .token_ids = options_.http.token_ids,
      .started = std::time(nullptr)});
  auto listener = http::Listener::Open({.address = options_.http.listen,
                                        .threads = kHttpThreads,
                                        .handshake = options_.handshake_timeout,
                                        .idle = options_.transfer_timeout,
                                        .tls_min_version = options_.access.tls_min_version},
                                       access_.certificates.get(), http::MakeHttpCalls(*door_),
                                       connections_, &metrics_);
  if (!listener.ok()) return listener.status();
  http_ = *std::move(listener);
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  if (absl::Status room = CheckThreadsOfGrpc(); !room.ok()) return room;
  if (absl::Status started = StartMetrics(); !started.ok()) return started;
  if (access_.certificates != nullptr || access_.callers != nullptr) {
    access_watch_.emplace(
        periodic_, access_, options_.access.check_interval, metrics_.access(),
        [this](const CallerTable& callers) { engine_->SetTenants(callers.tenants()); });
  }
  if (!options_.trace.endpoint.empty()) {
    if (absl::Status tracing = tracer_.Start(options_.trace); !tracing.ok()) return tracing;
  }
  std::string health_address = "off";
  if (!options_.health_listen.empty()) {
    auto endpoint = HealthEndpoint::Open(options_, health_, metrics_, periodic_);
    if (!endpoint.ok()) return endpoint.status();
    health_endpoint_ = *std::move(endpoint);
    health_address = WithPort(options_.health_listen, health_port());
  }
  if (options_.access.tls.on() && options_.access.tls_min_version == TlsVersion::k13) {
    if (!RequireTls13()) return absl::InternalError("OpenSSL cannot be told --tls-min-version");
  }
  auto listener =
      Listener::Open(SettingsOf(options_), ListenerCredentials(access_.certificates.get()),
                     MakeServices(), connections_, metrics_, periodic_);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  if (absl::Status started = StartHttp(); !started.ok()) return started;
  health_.SetModels(*engine_->models());
  if (engine_->options().catalog.control != ModelControl::kNone) {
    model_watch_.emplace(periodic_, kModelWatch, [this]() -> Periodic::Duration {
      health_.SetModels(*engine_->models());
      return kModelWatch;
    });
  }
  health_.SetServing(true);
  metrics_.SetReady(true);
  if (options_.watchdog_timeout.count() > 0) {
    watchdog_.emplace(periodic_, *engine_, options_.watchdog_timeout,
                      [this](bool stalled) { OnStall(stalled); });
  }
  LogInfo("warmed up", {{"seconds", engine_->info().warm_up_seconds}});
  const DeviceInfo& device = engine_->info().device;
  LogInfo("device", {{"name", device.name},
                     {"description", device.description},
                     {"threads", device.threads},
                     {"backend", device.backend}});
  LogCostModel(engine_->info().cost_model);
  LogInfo("listening",
          {{"grpc", WithPort(options_.listen, port())},
           {"security", SecurityOf(options_.access)},
           {"metrics", metrics_address_.empty() ? "off" : metrics_address_},
           {"health", health_address},
           {"http", http_ == nullptr ? "off" : WithPort(options_.http.listen, http_port())}});
  const AccessOptions& access = options_.access;
  if (!access.tls.on() && access.callers.empty() && !IsLocal(options_.listen)) {
    LogWarning(
        "everyone who can reach this address may call every method and read what others send: "
        "encrypt with --tls-certificate and --tls-key, identify callers with --auth-tokens or "
        "--tls-client-ca, or let only a trusted network or proxy reach it",
        {{"grpc", WithPort(options_.listen, port())}});
  }
  return absl::OkStatus();
}

int Server::metrics_port() const {
  return metrics_endpoint_ == nullptr ? 0 : metrics_endpoint_->port();
}

int Server::http_port() const { return http_ == nullptr ? 0 : http_->port(); }

int Server::health_port() const {
  return health_endpoint_ == nullptr ? 0 : health_endpoint_->port();
}

Server::~Server() {
  if (listener_ != nullptr) {
    RunDrain({milliseconds(0), milliseconds(0), milliseconds(0), milliseconds(0)});
  }
}

Outcome Server::Wait() {
  lifecycle_.WaitForStop();
  const bool all_answered = Drain();
  if (faulty_) return Outcome::kEngineFault;
  return all_answered ? Outcome::kDrained : Outcome::kDrainTimedOut;
}

bool Server::Drain() {
  // A broken device answers nothing more, so there is no reason to stay up.
  const milliseconds delay = faulty_ ? milliseconds(0) : options_.drain_delay;
  return RunDrain({delay, kQuiet, options_.drain_deadline, kTake});
}

void Server::LetCallersLeave() {
  if (http_ != nullptr) http_->Leave();
  if (!listener_->Leave()) {
    LogWarning(
        "this gRPC version cannot send GOAWAY early: callers that do not retry may lose calls");
    return;
  }
  const steady_clock::time_point end = steady_clock::now() + kLeave;
  while (!connections_.All().empty() && steady_clock::now() < end) {
    std::this_thread::sleep_for(kLeave / 100);
  }
}

bool Server::RunDrain(DrainTimes times) {
  MutexLock lock(drain_mu_);
  if (drained_.has_value()) return *drained_;
  const int64_t undelivered_before = connections_.undelivered();
  LogInfo("draining", {{"delay_ms", times.delay.count()},
                       {"deadline_ms", times.deadline.count()},
                       {"calls", lifecycle_.calls_in_flight()}});
  health_.SetServing(false);
  metrics_.SetReady(false);
  metrics_.SetDraining(true);
  std::this_thread::sleep_for(times.delay);
  // During the delay load balancers learned to use other servers. Refusing calls now would lose
  // those of callers that do not retry, so ask connected callers to leave first.
  if (times.delay.count() > 0) LetCallersLeave();

  lifecycle_.BeginRefusing();
  if (http_ != nullptr) http_->Leave();
  calls_.EndUnreceived(CallRecord::Draining());  // the engine would refuse them
  const steady_clock::time_point end = steady_clock::now() + times.deadline;
  bool all_answered = engine_->Drain(end);
  // The engine has answered; now the answers' last bytes leave. Watch streams last as long as their
  // callers want.
  health_.Shutdown();
  streams_.End();
  const bool quiet =
      lifecycle_.WaitUntilQuiet(times.quiet, std::max(end, steady_clock::now() + kMaxUnrest));
  if (!quiet) all_answered &= lifecycle_.calls_in_flight() == 0;
  listener_->Disconnect(std::max(end, steady_clock::now() + times.take));
  if (http_ != nullptr) http_->Stop();
  const int64_t undelivered = connections_.undelivered() - undelivered_before;
  all_answered &= undelivered == 0;
  tracer_.Stop(steady_clock::now() + kTraceFlush);
  // Last, so that probes see NOT_SERVING for as long as they can.
  if (health_endpoint_ != nullptr) health_endpoint_->Close();
  lifecycle_.RequestStop(StopCause::kRequested);
  LogInfo("drained",
          {{"all_answered", all_answered}, {"peers_without_their_answers", undelivered}});
  drained_ = all_answered;
  return all_answered;
}

// Nothing here can end the kernel that hangs. Health and the log tell the operator to restart the
// process. Waiting requests are answered when their deadlines pass.
void Server::OnStall(bool stalled) {
  health_.SetAlive(!stalled);
  metrics_.SetStalled(stalled);
  const std::string& device = engine_->info().device.name;
  if (stalled) {
    LogError("the engine has work but makes no progress; it may hang: restart the server",
             {{"device", device}, {"watchdog_timeout_ms", options_.watchdog_timeout.count()}});
  } else {
    LogWarning("the engine makes progress again", {{"device", device}});
  }
}

void Server::OnEngineFault() {
  if (faulty_.exchange(true)) return;
  LogError("the device does not recover; stopping", {{"device", engine_->info().device.name}});
  health_.SetServing(false);
  metrics_.SetReady(false);
  lifecycle_.RequestStop(StopCause::kEngineFault);
}

}  // namespace castor::server
