// A gRPC server that does nothing: the floor under what castor-server may take for a call. It reads
// each request, whatever its method, and answers with --answer-bytes of zeros; or, with 0, with the
// status of a request that cannot be answered in time.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace {

class Call final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Call(const grpc::ByteBuffer& answer) : answer_(answer) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    if (answer_.Length() > 0) return StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    Finish({grpc::StatusCode::DEADLINE_EXCEEDED,
            "the request would take about 2.1 ms after 0.0 ms in the queue, and its deadline is in "
            "2.8 ms",
            std::string(160, 'd')});  // as much as castor-server says in details
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  const grpc::ByteBuffer& answer_;
};

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(size_t answer_bytes) {
    const grpc::Slice slice(std::string(answer_bytes, '\0'));
    if (answer_bytes > 0) answer_ = grpc::ByteBuffer(&slice, 1);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Call(answer_);
  }

 private:
  grpc::ByteBuffer answer_;
};

}  // namespace

int main(int argc, char** argv) {
  size_t answer_bytes = 0;
  for (int i = 1; i + 1 < argc; ++i) {  // it is given castor-server's flags, too
    if (std::string_view(argv[i]) != "--answer-bytes") continue;
    answer_bytes = std::strtoul(argv[i + 1], nullptr, 10);
  }
  Service service(answer_bytes);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::fprintf(stderr, "info listening grpc=127.0.0.1:%d metrics=127.0.0.1:%d\n", port, port);
  server->Wait();
}
