#include "client/load/drive/echo_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <climits>

#include "client/cli/command.h"

namespace castor::load {
namespace {

// Reads one message and answers with an empty one, which is an answer of every type.
class Echo : public grpc::ServerGenericBidiReactor {
 public:
  Echo() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    const grpc::Slice nothing;
    answer_ = grpc::ByteBuffer(&nothing, 1);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_, answer_;
};

}  // namespace

class EchoServer::Service : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Echo;  // deletes itself
  }
};

EchoServer::EchoServer()
    : target_("unix-abstract:castor-load-echo-" + std::to_string(getpid())),
      service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(service_.get());
  builder.SetMaxReceiveMessageSize(INT_MAX);
  builder.AddListeningPort(target_, grpc::InsecureServerCredentials());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw cli::UsageError("cannot listen on " + target_);
}

EchoServer::~EchoServer() { server_->Shutdown(std::chrono::system_clock::now()); }

}  // namespace castor::load
