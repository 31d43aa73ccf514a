// A call as gRPC runs it, from its headers on: the base of all calls of our services.
//
// gRPC would collect the message of a unary call by itself and show us the call only when it is
// complete; until then we could not bound it. So our methods are streams to gRPC, with one message
// each. On the wire that is a unary call like any other.
//
//   gRPC threads   Begin: the table's bounds, then whether the caller may -> StartRead
//                  OnReadDone -> OnMessage
//                  OnCancel, at any time after Begin began; OnDone, last, deletes the call
//   any thread     Send or SendError, once
//   call table     End, when its time is up or the server stops: refuses a call without a message
//
// gRPC drops what a reaction throws, and the call would never end. So a reaction that throws before
// it has answered is answered here, and so is what throws while a call is made.
#pragma once

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/caller_authorizer.h"
#include "server/transport/call.h"
#include "server/transport/call_table.h"

namespace castor::server {

// Makes what one thread does to a call visible to the next thread that uses the call.
//
// A handler, a completion and gRPC's callbacks touch a call's members in turn. gRPC orders them
// already, but ThreadSanitizer cannot see how in an uninstrumented library. This class states the
// order where ThreadSanitizer and readers can see it.
class Handoff {
 public:
  // Publishes everything that this thread has done so far.
  void HandOver() { turns_.fetch_add(1, std::memory_order_release); }
  // Sees everything that was done before each earlier HandOver.
  void TakeOver() const { static_cast<void>(turns_.load(std::memory_order_acquire)); }

 private:
  std::atomic<int> turns_ = 0;
};

// A call whose headers are there.
struct IncomingCall {
  grpc::CallbackServerContext* context;  // gRPC's; lives as long as the call
  absl::StatusOr<Caller> caller;         // or why it is to be refused
  std::string_view name;                 // "package.Service/Method", a literal
};

class MessageCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  MessageCall(CallTable& table, CallTable::Kind kind, IncomingCall incoming);

  // Reads the message, or refuses the call. The last line of a handler.
  void Begin() noexcept;

  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  ~MessageCall() override = default;

  // A message of a request that comes in several: an error refuses the call, else it reads on.
  // Nothing: the request is this message. After the last part comes OnMessage, with no bytes.
  virtual std::optional<absl::Status> OnPart(const grpc::ByteBuffer& /*message*/) {
    return std::nullopt;
  }

  // The message has arrived; the call may empty it. May throw as long as it has not answered, nor
  // left that to another thread.
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // The call must be refused: it is over a bound, its caller may not make it, or ended it without a
  // message. Must call SendError.
  virtual void OnRefusal(const absl::Status& error) = 0;

  // The caller went away without a message. Must call SendError, though no one reads it.
  virtual void OnLost() = 0;

  // The caller went away. May come at any time from Begin on, also after Send.
  virtual void OnCallerGone() {}

  void Send(grpc::ByteBuffer answer, TimePoint deadline) noexcept;
  void SendError(grpc::Status status) noexcept;

  // The thread that destroys the call sees what this one did to it.
  void HandOver() { handoff_.HandOver(); }
  // Whether the caller is gone.
  bool cancelled() const { return row_.cancelled(); }

  grpc::CallbackServerContext* context() const { return context_; }
  Call& call() { return call_; }
  const Call& call() const { return call_; }
  std::string_view name() const { return name_; }
  // The caller. In OnMessage never an error.
  const absl::StatusOr<Caller>& caller() const { return caller_; }

 private:
  // Who may use the call next.
  enum class Turn {
    kOurs,   // a reaction's, or it is answered
    kRead,   // a read is under way
    kEnded,  // End has come: it refuses the call if it found a read, else the reaction does
  };

  bool End(const absl::Status& why);
  bool Pass(Turn from, Turn to) { return turn_.compare_exchange_strong(from, to); }
  void Read();
  template <typename Reaction>
  void React(Reaction reaction) noexcept;

  CallTable& table_;
  grpc::CallbackServerContext* const context_;
  GrpcCall call_;
  const std::string_view name_;
  const absl::StatusOr<Caller> caller_;
  std::atomic<Turn> turn_ = Turn::kOurs;
  CallTable::Row row_;
  absl::Status entered_;
  grpc::ByteBuffer message_;
  bool in_parts_ = false;  // some have come
  grpc::ByteBuffer answer_;
  Handoff handoff_;
};

// A service whose methods are MessageCalls or streams. Every call of every method passes the
// authorizer on its way to its reactor.
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
  void AddMethod(const char* path, std::function<Reactor*(IncomingCall)> make) {
    const std::string_view name(path + 1);
    names_.emplace(name.substr(0, name.find('/')));
    // Generated code does the same for a streaming method with raw bytes.
    grpc::Service::AddMethod(new grpc::internal::RpcServiceMethod(
        path, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        methods_++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                        [this, path, make = std::move(make)](grpc::CallbackServerContext* call) {
                          return Make(make, path, call);
                        }));
  }

 private:
  Reactor* Make(const std::function<Reactor*(IncomingCall)>& make, const char* path,
                grpc::CallbackServerContext* call) noexcept;

  const Authorizer& authorizer_;
  int methods_ = 0;
  std::set<std::string> names_;
};

}  // namespace castor::server
