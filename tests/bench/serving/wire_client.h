// A client with as little overhead as possible: it sends prebuilt bytes and hands out the answer's
// bytes unparsed.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/bench/command_line.h"

namespace castor::bench {

class WireClient {
 public:
  explicit WireClient(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  // `method` is a full path such as "/castor.v1.AttentionService/Attend". `done` is called on a
  // gRPC thread; an error ends the program.
  void Call(const char* method, const grpc::ByteBuffer& request,
            std::function<void(grpc::ByteBuffer)> done) {
    struct State {
      grpc::ClientContext context;
      grpc::ByteBuffer request, response;
    };
    auto state = std::make_shared<State>();
    state->request = request;
    stub_->UnaryCall(&state->context, method, {}, &state->request, &state->response,
                     [state, done = std::move(done)](const grpc::Status& status) mutable {
                       if (!status.ok()) Die(status.error_message());
                       grpc::ByteBuffer response = std::move(state->response);
                       // The context holds the channel. This gRPC thread must not drop the last
                       // reference to it: that would free the queue that the thread takes calls
                       // from. After `done` the client may be gone.
                       state.reset();
                       done(std::move(response));
                     });
  }

 private:
  std::unique_ptr<grpc::GenericStub> stub_;
};

// Parses the answer; ends the program if it does not parse.
template <typename Message>
Message Parse(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  Message message;
  if (!bytes.DumpToSingleSlice(&slice).ok() ||
      !message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    Die("the answer does not parse");
  }
  return message;
}

}  // namespace castor::bench
