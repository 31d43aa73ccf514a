// One call of a small method that answers at once, on gRPC's thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "server/services/call.h"
#include "server/services/message.h"

namespace castor::server {

// Parses the request, lets `handler` answer it, serialises the response. `handler` must not block:
//   absl::Status handler(const Request&, Response*)
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* AnswerTyped(const ServiceContext& services, Method method,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* bytes, grpc::ByteBuffer* response,
                                      Handler&& handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CallRecord record(services, method);
  record.Received(*bytes);
  Request request;
  Response answer;
  absl::Status status = record.accepted() ? ParseMessage(*bytes, &request) : CallRecord::Draining();
  if (status.ok()) status = handler(request, &answer);
  if (status.ok()) {
    *response = SerializeMessage(answer);
    record.Answered(*response, std::nullopt, "");
    reactor->Finish(grpc::Status::OK);
  } else {
    reactor->Finish(record.Refused(status, std::nullopt, "", context));
  }
  return reactor;
}

}  // namespace castor::server
