// The whole server as one object: engine, services, listener, metrics; its parts are built by
// Start, run until someone stops them, and drained in order.
//
//   auto server = Server::Start(options);          // loads the models, then listens
//   ...                                            // (*server)->RequestStop() from any thread
//   const Outcome outcome = (*server)->Wait();     // drains before it returns
//
// Any thread may call any method. The owner calls the destructor, which drains without delay if no
// drain has happened. server/DESIGN.md describes the order of events.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/auth/access.h"
#include "server/auth/caller_authorizer.h"
#include "server/http/door.h"
#include "server/http/listener.h"
#include "server/lifecycle/health.h"
#include "server/lifecycle/health_endpoint.h"
#include "server/lifecycle/lifecycle.h"
#include "server/lifecycle/periodic.h"
#include "server/lifecycle/watchdog.h"
#include "server/metrics/load_report.h"
#include "server/metrics/metrics.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/oip/oip_service.h"
#include "server/options/options.h"
#include "server/services/call.h"
#include "server/services/health_service.h"
#include "server/services/message_stream.h"
#include "server/services/reflection_service.h"
#include "server/services/services.h"
#include "server/shared_memory.h"
#include "server/tei/tei_service.h"
#include "server/tracing/tracer.h"
#include "server/transport/call_table.h"
#include "server/transport/connections.h"
#include "server/transport/listener.h"

namespace castor::server {

// How a server's life ended.
enum class Outcome {
  kDrained,        // every admitted call was answered, and its caller has the answer
  kDrainTimedOut,  // the drain's deadline came first: some calls were cut off
  kEngineFault,    // the device did not recover
};

class Server {
 public:
  // Reads the files of access, opens the device and loads the models, which can take long; does not
  // listen yet. An error says in one line what is wrong. An `engine` or `authorizer` that is given
  // replaces the one that the options describe.
  static absl::StatusOr<std::unique_ptr<Server>> Create(
      ServerOptions options, std::unique_ptr<Engine> engine = nullptr,
      std::unique_ptr<Authorizer> authorizer = nullptr);

  // Listens, and serves when it returns. Once, by the owner, before Wait and Drain.
  absl::Status Listen();

  // Create and Listen.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      ServerOptions options, std::unique_ptr<Engine> engine = nullptr,
      std::unique_ptr<Authorizer> authorizer = nullptr);

  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return listener_->port(); }  // of the services; 0 on a unix: socket
  int metrics_port() const;                       // 0 when there is no endpoint
  int http_port() const;                          // the same
  int health_port() const;                        // the same
  const Engine& engine() const { return *engine_; }
  Periodic& periodic() { return periodic_; }
  int64_t calls_in_flight() const { return lifecycle_.calls_in_flight(); }

  // Makes Wait return; does not wait itself.
  void RequestStop() { lifecycle_.RequestStop(StopCause::kRequested); }

  // Waits for RequestStop or a fault of the engine, then drains.
  Outcome Wait();

  // Readiness falls; the server goes on serving for the drain delay, then refuses new work with
  // UNAVAILABLE, answers what it admitted, and closes when callers have their answers. Returns
  // whether all have them in time. Only the first call does the work; others wait for it. gRPC's
  // own end is left to the destructor, which waits for it, for ever where a call hangs.
  bool Drain();

 private:
  struct DrainTimes {
    std::chrono::milliseconds delay;     // still serving
    std::chrono::milliseconds quiet;     // without a call, while new ones are refused
    std::chrono::milliseconds deadline;  // for what was admitted
    std::chrono::milliseconds take;      // at least, for callers to take the last answers
  };

  Server(ServerOptions options, Access access, std::unique_ptr<Engine> engine,
         std::unique_ptr<Authorizer> authorizer);

  std::unique_ptr<Authorizer> MakeAuthorizer();
  LoadReports* MakeLoadReports();  // null: the options ask for none
  absl::Status StartMetrics();
  absl::Status StartHttp();
  // The services that the options ask for.
  std::vector<grpc::Service*> MakeServices();

  // Asks connected callers to go elsewhere, and serves them until the request has reached them.
  void LetCallersLeave();
  bool RunDrain(DrainTimes times);
  void OnEngineFault();
  void OnStall(bool stalled);

  // Constant after Start. Declared in the order of their dependence: destroyed bottom up.
  const ServerOptions options_;
  Periodic periodic_;
  Access access_;
  std::unique_ptr<Engine> engine_;
  Lifecycle lifecycle_;
  Metrics metrics_;
  RejectionLog rejections_;
  const std::unique_ptr<Authorizer> authorizer_;
  Tracer tracer_;
  SharedMemory shared_memory_;
  DecodeBudget decoding_;
  Connections connections_;
  CallTable calls_;
  OpenStreams streams_;
  const oip::Catalogue catalogue_;
  const tei::Models tei_models_;
  HealthState health_;
  HealthService health_service_;
  std::optional<LoadReports> load_reports_;
  const ServiceContext context_;
  std::string metrics_address_;  // empty: there is no endpoint
  AttentionService attention_;
  EncoderService encoder_;
  ModelService models_;
  ServerService info_;
  SharedMemoryService regions_;
  std::optional<oip::OipService> oip_;
  std::optional<tei::TeiService> tei_;
  std::optional<ReflectionService> reflection_;
  std::unique_ptr<HealthEndpoint> health_endpoint_;  // null: there is none
  std::unique_ptr<Listener> listener_;
  std::optional<http::Door> door_;
  std::unique_ptr<http::Listener> http_;               // null: there is none
  std::unique_ptr<MetricsEndpoint> metrics_endpoint_;  // the same
  std::optional<Watchdog> watchdog_;                   // stops before what it reports on
  std::optional<AccessWatch> access_watch_;
  std::optional<Periodic::Task> model_watch_;  // tells health of models that come and go

  std::atomic<bool> faulty_ = false;

  Mutex drain_mu_;  // held through a drain; taken before every other lock of the server
  std::optional<bool> drained_ ABSL_GUARDED_BY(drain_mu_);
};

}  // namespace castor::server
