#include "tests/bench/load/caller.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <future>
#include <utility>

#include "client/error.h"
#include "tests/bench/command_line.h"

namespace castor::bench {

Caller::Caller(const std::string& address, int connections) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Without it, channels to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  for (int i = 0; i < connections; ++i) {
    auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30))) {
      Die("cannot connect to " + address);
    }
    stubs_.push_back(std::make_unique<grpc::GenericStub>(std::move(channel)));
  }
}

std::shared_ptr<StartedCall> Caller::Start(const char* method, const grpc::ByteBuffer& request,
                                           const CallSettings& settings, Done done) {
  auto call = std::make_shared<StartedCall>();
  call->request_ = request;
  if (settings.deadline != Clock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        settings.deadline - Clock::now());
    call->context_.set_deadline(std::chrono::system_clock::now() + left);
  }
  if (!settings.tenant.empty()) call->context_.AddMetadata("castor-tenant", settings.tenant);
  grpc::GenericStub& stub = *stubs_[next_.fetch_add(1) % stubs_.size()];
  stub.UnaryCall(&call->context_, method, {}, &call->request_, &call->response_,
                 [call, done = std::move(done)](const grpc::Status& status) mutable {
                   Answer answer;
                   answer.ended = Clock::now();
                   answer.code = status.error_code();
                   if (status.ok()) {
                     answer.bytes = std::move(call->response_);
                   } else {
                     client::Error error = client::ParseError(status);
                     answer.reason = std::move(error.reason);
                     answer.retry_after = error.retry_after;
                   }
                   // The context holds the channel, whose last reference this gRPC thread must
                   // not drop: see wire_client.h.
                   call.reset();
                   done(std::move(answer));
                 });
  return call;
}

Answer Caller::CallAndWait(const char* method, const grpc::ByteBuffer& request,
                           const CallSettings& settings) {
  auto answered = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = answered->get_future();
  (void)Start(method, request, settings,
              [answered](Answer answer) { answered->set_value(std::move(answer)); });
  return answer.get();
}

}  // namespace castor::bench
