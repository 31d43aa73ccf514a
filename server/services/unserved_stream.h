// A bidirectional method of the contract that this server does not serve yet.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "engine/base/error.h"
#include "server/services/call.h"

namespace castor::server {

// Answers UNIMPLEMENTED, NOT_SERVED without reading anything, and deletes itself.
class UnservedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  UnservedStream(const ServiceContext& services, Method method,
                 grpc::CallbackServerContext* context)
      : record_(services, method) {
    const absl::Status error = record_.accepted()
                                   ? MakeError(Reason::kNotServed, "not served by this server yet")
                                   : CallRecord::Draining();
    Finish(record_.Refused(error, std::nullopt, "", context));
  }

  void OnDone() override { delete this; }

 private:
  CallRecord record_;
};

}  // namespace castor::server
