// A service whose methods are MessageCalls or streams; message_call.h says why gRPC sees all of
// them as streams.
// Every call of every method passes the authorizer on its way to its reactor.
#pragma once

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "server/auth/authorizer.h"
#include "server/transport/message_call.h"

namespace castor::server {

class MessageService : public grpc::Service {
 public:
  // The full names of the services whose methods were added; two versions of one can be served by
  // one object.
  const std::set<std::string>& names() const { return names_; }

 protected:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `authorizer` must outlive the service.
  explicit MessageService(const Authorizer& authorizer) : authorizer_(authorizer) {}

  // `path` is "/package.Service/Method", a literal. `make` makes the call's reactor, on one of
  // gRPC's threads; it must read nothing of a call whose caller is an error, and refuse it with
  // that.
  void AddMethod(const char* path, std::function<Reactor*(Arrival)> make) {
    const std::string_view name(path + 1);
    names_.emplace(name.substr(0, name.find('/')));
    // What generated code does for a streaming method with raw bytes.
    grpc::Service::AddMethod(new grpc::internal::RpcServiceMethod(
        path, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        methods_++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                        [this, path, make = std::move(make)](grpc::CallbackServerContext* call) {
                          return make({call, authorizer_.Authorize(*call, path)});
                        }));
  }

 private:
  const Authorizer& authorizer_;
  int methods_ = 0;
  std::set<std::string> names_;
};

}  // namespace castor::server
