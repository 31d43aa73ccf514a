#include "client/load/workers/worker_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "castor/worker/v1/worker.grpc.pb.h"
#include "client/load/workers/keep_grpc.h"
#include "client/load/workers/limits.h"
#include "client/load/workers/running_job.h"
#include "client/load/workers/token.h"
#include "client/load/workers/wire.h"

namespace castor::load {
namespace {

grpc::Status Refuse(grpc::StatusCode code, const std::string& message) { return {code, message}; }

}  // namespace

class WorkerService final : public wire::LoadWorker::Service {
 public:
  WorkerService(const WorkerOptions& options, PrepareJob prepare)
      : options_(options), prepare_(std::move(prepare)) {}

  grpc::Status ReadClock(grpc::ServerContext* context, const wire::ReadClockRequest*,
                         wire::ReadClockResponse* response) override {
    if (!Knows(*context)) return WrongToken();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    response->set_unix_ns(std::chrono::nanoseconds(now).count());
    return grpc::Status::OK;
  }

  grpc::Status Run(grpc::ServerContext* context, RunningJob::Stream* stream) override {
    if (!Knows(*context)) return WrongToken();
    wire::RunRequest request;
    if (!stream->Read(&request) || !request.has_prepare()) {
      return Refuse(grpc::INVALID_ARGUMENT, "a job begins with `prepare`");
    }
    if (request.prepare().version() != options_.version) {
      return Refuse(grpc::FAILED_PRECONDITION,
                    "this worker is castor-load " + options_.version + " and the coordinator is " +
                        request.prepare().version() + ": use the same version on all hosts");
    }
    Job job;
    try {
      job = FromMessage(request.prepare());
    } catch (const std::invalid_argument& error) {
      return Refuse(grpc::INVALID_ARGUMENT, error.what());
    }
    if (busy_.exchange(true)) {
      return Refuse(grpc::FAILED_PRECONDITION,
                    "this worker has another job: wait for its end, or use another worker");
    }
    const absl::Cleanup idle = [this] { busy_ = false; };
    RunningJob(prepare_, job, options_.version, stream).Run();
    return grpc::Status::OK;
  }

 private:
  bool Knows(const grpc::ServerContext& context) const {
    if (options_.token.empty()) return true;
    const auto& metadata = context.client_metadata();
    const auto given = metadata.find("authorization");
    if (given == metadata.end()) return false;
    return SameToken({given->second.data(), given->second.size()}, Bearer(options_.token));
  }
  static grpc::Status WrongToken() {
    return Refuse(grpc::UNAUTHENTICATED, "this worker asks for another token");
  }

  const WorkerOptions& options_;
  const PrepareJob prepare_;
  std::atomic<bool> busy_ = false;
};

bool OnThisMachineOnly(const std::string& listen) {
  for (const char* prefix : {"unix:", "127.", "localhost:", "[::1]:"}) {
    if (listen.starts_with(prefix)) return true;
  }
  return false;
}

class WorkerServer::Impl {
 public:
  Impl(WorkerOptions options, PrepareJob prepare)
      : options_(std::move(options)), service_(options_, std::move(prepare)) {
    KeepGrpc();
    const bool local = OnThisMachineOnly(options_.listen);
    if (!local && options_.token.empty()) {
      throw std::invalid_argument("'" + options_.listen +
                                  "' can be reached from other machines, and a worker sends load "
                                  "to wherever it is told: give it a token");
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessage);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kKeepaliveMs / 2);
    // Find out when the coordinator's host is gone.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      throw std::runtime_error("cannot listen on '" + options_.listen +
                               "': is the address right, and free?");
    }
    address_ = options_.listen;
    if (!address_.starts_with("unix:")) {
      address_ = address_.substr(0, address_.rfind(':') + 1) + std::to_string(port);
    }
  }

  void Shutdown() { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }

 private:
  const WorkerOptions options_;
  WorkerService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

WorkerServer::WorkerServer(WorkerOptions options, PrepareJob prepare)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(prepare))) {}

WorkerServer::~WorkerServer() { Shutdown(); }

const std::string& WorkerServer::address() const { return impl_->address(); }

void WorkerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace castor::load
