// A caller of drain.py by gRPC's library for C++: drain_caller ADDRESS REQUEST_FILE.
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int, char** argv) {
  std::ifstream file(argv[2], std::ios::binary);
  const grpc::Slice slice(std::string(std::istreambuf_iterator<char>(file), {}));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel =
      grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  const grpc::internal::RpcMethod method("/castor.v1.AttentionService/Attend",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer answer;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(), method, &context, request, &answer);
    if (!status.ok()) {
      std::printf("ended %d %s\n", status.error_code(), status.error_message().c_str());
      break;
    }
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("answer %.6f\n", now.count());
    std::fflush(stdout);
  }
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;  // its channel stays open
}
