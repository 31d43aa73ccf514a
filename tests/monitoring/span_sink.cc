// A collector of traces that throws everything away, as cheaply as gRPC allows: for measurements of
// the server that sends. Prints its address first, and with SIGTERM how much came.
//   span_sink [HOST:PORT]

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>

namespace {

std::atomic<int64_t> exports = 0;
std::atomic<int64_t> bytes = 0;

class Export final : public grpc::ServerGenericBidiReactor {
 public:
  Export() { StartRead(&message_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    ++exports;
    bytes += static_cast<int64_t>(message_.Length());
    message_.Clear();
    StartWriteAndFinish(&empty_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
  const grpc::Slice nothing_;
  grpc::ByteBuffer empty_{&nothing_, 1};
};

class Sink final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Export;
  }
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Sink sink;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(argc > 1 ? argv[1] : "127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.RegisterCallbackGenericService(&sink);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  server->Shutdown();
  std::printf("%lld exports, %lld bytes\n", static_cast<long long>(exports),
              static_cast<long long>(bytes));
  return 0;
}
