#include "server/server.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/listener.h"
#include "server/logging.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// New calls are refused for at least this long before gRPC shuts down. It resets calls that reach
// it later, and their callers cannot tell that nothing was done; these here are told UNAVAILABLE.
constexpr milliseconds kRefusal{250};

// For the last bytes of the last answers, after every call was answered.
constexpr milliseconds kCloseDeadline{1000};

std::vector<std::string> HealthNames(const EngineInfo& info) {
  std::vector<std::string> names = {"",
                                    std::string(kReadiness),
                                    v1::AttentionService::service_full_name(),
                                    v1::EncoderService::service_full_name(),
                                    v1::ModelService::service_full_name(),
                                    v1::ServerService::service_full_name(),
                                    v1::SharedMemoryService::service_full_name()};
  for (const ModelInfo& model : info.models) names.push_back("model/" + model.name);
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
  const bool cached = model.source == CostModelInfo::Source::kCached;
  LogInfo("cost model", {{"source", cached ? "cached" : "measured"},
                         {"seconds", model.seconds},
                         {"file", model.file},
                         {"us_at_4096_tokens", examples}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(options.engine);
  if (!engine.ok()) return engine.status();
  return Create(std::move(options), *std::move(engine));
}

std::unique_ptr<Server> Server::Create(ServerOptions options, std::unique_ptr<Engine> engine) {
  return std::unique_ptr<Server>(new Server(std::move(options), std::move(engine)));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  absl::StatusOr<std::unique_ptr<Server>> server = Create(std::move(options));
  if (!server.ok()) return server;
  if (absl::Status listening = (*server)->Listen(); !listening.ok()) return listening;
  return server;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      std::unique_ptr<Engine> engine) {
  std::unique_ptr<Server> server = Create(std::move(options), std::move(engine));
  if (absl::Status listening = server->Listen(); !listening.ok()) return listening;
  return server;
}

Server::Server(ServerOptions options, std::unique_ptr<Engine> engine)
    : options_(std::move(options)),
      engine_(std::move(engine)),
      metrics_(*engine_),
      shared_memory_(options_.shared_memory ? options_.max_shared_memory_regions : 0),
      health_(HealthNames(engine_->info())),
      context_{*engine_,
               lifecycle_,
               metrics_,
               shared_memory_,
               options_.max_deadline,
               [this] { OnEngineFault(); }},
      attention_(context_),
      encoder_(context_),
      models_(context_),
      info_(context_, options_.max_message_bytes),
      regions_(context_) {}

absl::Status Server::Listen() {
  std::string metrics_address = "off";
  if (!options_.metrics_listen.empty()) {
    const absl::StatusOr<int> port = metrics_.StartEndpoint(options_.metrics_listen);
    if (!port.ok()) return port.status();
    metrics_port_ = *port;
    metrics_address = WithPort(options_.metrics_listen, metrics_port_);
  }
  absl::StatusOr<Listener> listener =
      OpenListener(options_, {&health_, &attention_, &encoder_, &models_, &info_, &regions_});
  if (!listener.ok()) return listener.status();
  grpc_ = std::move(listener->server);
  port_ = listener->port;
  health_.SetServing(true);
  metrics_.SetReady(true);
  LogCostModel(engine_->info().cost_model);
  LogInfo("listening", {{"grpc", WithPort(options_.listen, port_)}, {"metrics", metrics_address}});
  return absl::OkStatus();
}

Server::~Server() {
  if (grpc_ != nullptr) RunDrain({milliseconds(0), milliseconds(0), milliseconds(0)});
}

Outcome Server::Wait() {
  lifecycle_.WaitForStop();
  const bool all_answered = Drain();
  if (faulty_) return Outcome::kEngineFault;
  return all_answered ? Outcome::kDrained : Outcome::kDrainTimedOut;
}

bool Server::Drain() {
  // A device that is broken answers nothing more, so there is nothing to stay up for.
  const milliseconds delay = faulty_ ? milliseconds(0) : options_.drain_delay;
  return RunDrain({delay, kRefusal, options_.drain_deadline});
}

bool Server::RunDrain(DrainTimes times) {
  MutexLock lock(drain_mu_);
  if (drained_.has_value()) return *drained_;
  LogInfo("draining", {{"delay_ms", times.delay.count()},
                       {"deadline_ms", times.deadline.count()},
                       {"calls", lifecycle_.calls_in_flight()}});
  health_.SetServing(false);
  metrics_.SetReady(false);
  metrics_.SetDraining(true);
  std::this_thread::sleep_for(times.delay);

  lifecycle_.BeginRefusing();
  const steady_clock::time_point refusing_since = steady_clock::now();
  const steady_clock::time_point end = refusing_since + times.deadline;
  bool all_answered = engine_->Drain(end);
  // The engine has answered; now the answers' last bytes leave. Watch streams last as long as their
  // callers like, and would hold the shutdown up.
  health_.Shutdown();
  std::this_thread::sleep_until(refusing_since + times.refusal);
  all_answered &= lifecycle_.WaitUntilIdle(std::max(end, steady_clock::now() + kCloseDeadline));
  grpc_->Shutdown(std::chrono::system_clock::now() + kCloseDeadline);
  lifecycle_.RequestStop(StopCause::kRequested);
  LogInfo("drained", {{"all_answered", all_answered}});
  drained_ = all_answered;
  return all_answered;
}

void Server::OnEngineFault() {
  if (faulty_.exchange(true)) return;
  LogError("the device does not recover; stopping", {{"device", engine_->info().device.name}});
  health_.SetServing(false);
  metrics_.SetReady(false);
  lifecycle_.RequestStop(StopCause::kEngineFault);
}

}  // namespace castor::server
