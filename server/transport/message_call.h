// A call as gRPC runs it, from its headers on: the base of all calls of our services.
//
// gRPC would collect the message of a unary call by itself and show us the call only when that is
// complete; until then nobody else knows of it. So our methods are streams to gRPC, with one
// message each. On the wire that is a unary call like any other.
//
//   gRPC threads   Begin: the table's bounds -> StartRead -> OnReadDone -> OnMessage
//                  OnCancel, at any time after Begin began; OnDone, last, deletes the call
//   any thread     Send or SendError, once
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "absl/status/status.h"
#include "server/services/handoff.h"
#include "server/transport/call_table.h"

namespace castor::server {

class MessageCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `context` is gRPC's and lives as long as the call.
  MessageCall(CallTable& table, CallTable::Kind kind, grpc::CallbackServerContext* context);

  // Reads the message, or refuses the call. The last line of a handler.
  void Begin();

  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  ~MessageCall() override = default;

  // The message has arrived; the call may empty it.
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // The call must be refused: it is over a bound, or its caller ended it without a message. Must
  // call SendError.
  virtual void OnRefusal(const absl::Status& error) = 0;

  // The caller went away without a message. Must call SendError, though nobody reads it.
  virtual void OnLost() = 0;

  // The caller went away. May come at any time from Begin on, also after Send.
  virtual void OnCallerGone() {}

  void Send(grpc::ByteBuffer answer, TimePoint deadline);
  void SendError(const grpc::Status& status);

  // The thread that destroys the call sees what this one did to it.
  void HandOver() { handoff_.HandOver(); }
  // Whether the caller is gone.
  bool cancelled() const { return row_.cancelled(); }

  grpc::CallbackServerContext* context() const { return context_; }

 private:
  CallTable& table_;
  grpc::CallbackServerContext* const context_;
  CallTable::Row row_;
  absl::Status entered_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
  Handoff handoff_;
};

}  // namespace castor::server
