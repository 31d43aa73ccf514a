// A service whose methods are MessageCalls; message_call.h says why gRPC sees them as streams.
#pragma once

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>

#include "server/transport/message_call.h"

namespace castor::server {

class MessageService : public grpc::Service {
 protected:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `path` is "/package.Service/Method". `make` makes the call's reactor, on one of gRPC's threads.
  void AddMethod(const char* path, std::function<Reactor*(grpc::CallbackServerContext*)> make) {
    // What generated code does for a streaming method with raw bytes.
    grpc::Service::AddMethod(new grpc::internal::RpcServiceMethod(
        path, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        methods_++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                        std::move(make)));
  }

 private:
  int methods_ = 0;
};

}  // namespace castor::server
