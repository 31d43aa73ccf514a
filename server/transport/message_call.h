// A call as gRPC runs it, from its headers on: what every call of every service of ours is.
//
// gRPC would collect the message of a unary call by itself and show us the call only then; until
// its message is complete nobody but gRPC knows of it. So our methods are streams to gRPC, on which
// one message comes. On the wire that is a unary call like any other.
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

  // Reads the message, or has the call refused. The handler's last line.
  void Begin();

  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  ~MessageCall() override = default;

  // The message, which the call may empty.
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // The call is to be refused: over a bound, or its caller ended it without a message. Is to call
  // SendError.
  virtual void OnRefusal(const absl::Status& error) = 0;

  // The caller went away without a message. Nobody reads what is sent; is to call SendError.
  virtual void OnLost() = 0;

  // The caller went away. May come at any time from Begin on, also after Send.
  virtual void OnCallerGone() {}

  void Send(grpc::ByteBuffer answer, TimePoint deadline);
  void SendError(const grpc::Status& status);

  // Whoever destroys the call sees what this thread did to it.
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
