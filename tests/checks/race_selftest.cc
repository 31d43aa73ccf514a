// Shows that the ThreadSanitizer build still sees races in gRPC handlers: suppressions that are
// slightly too broad silence them all, and the build then passes for the wrong reason.
//   race_selftest racy      two clients' calls count without a lock: a report is expected
//   race_selftest guarded   the same with the project's Mutex: no report is expected
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "castor/v1/server.grpc.pb.h"
#include "engine/base/mutex.h"

namespace castor {
namespace {

constexpr int kClients = 4;
constexpr int kCallsPerClient = 50;

class CountingService : public v1::ServerService::CallbackService {
 public:
  explicit CountingService(bool guarded) : guarded_(guarded) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo*) override {
    if (guarded_) {
      MutexLock lock(mu_);
      ++guarded_calls_;
    } else {
      CountWithoutLock();
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  [[gnu::noinline]] void CountWithoutLock() { ++unguarded_calls_; }

  const bool guarded_;
  Mutex mu_;
  int guarded_calls_ ABSL_GUARDED_BY(mu_) = 0;
  int unguarded_calls_ = 0;  // the planted race
};

void Call(const std::string& target, int client) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("client", client);  // different arguments give each its own connection
  const auto stub = v1::ServerService::NewStub(
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
  for (int i = 0; i < kCallsPerClient; ++i) {
    grpc::ClientContext context;
    v1::ServerInfo info;
    const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
    if (!status.ok()) {
      std::fprintf(stderr, "call failed: %s\n", status.error_message().c_str());
      std::abort();
    }
  }
}

void Run(bool guarded) {
  CountingService service(guarded);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(Call, "127.0.0.1:" + std::to_string(port), i);
  }
  for (std::thread& client : clients) client.join();
  server->Shutdown();
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  castor::Run(std::strcmp(argv[1], "guarded") == 0);
  std::puts("served");
}
