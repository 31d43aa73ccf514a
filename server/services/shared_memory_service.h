// castor.v1.SharedMemoryService: which regions requests may refer to. The server calls it on gRPC's
// threads; stateless, the registry is the server's.
#pragma once

#include "castor/v1/shared_memory.grpc.pb.h"
#include "server/services/call.h"

namespace castor::server {

class SharedMemoryService final
    : public v1::SharedMemoryService::WithRawCallbackMethod_RegisterSharedMemory<
          v1::SharedMemoryService::WithRawCallbackMethod_UnregisterSharedMemory<
              v1::SharedMemoryService::WithRawCallbackMethod_ListSharedMemory<
                  v1::SharedMemoryService::Service>>> {
 public:
  explicit SharedMemoryService(const ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* RegisterSharedMemory(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* bytes,
                                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnregisterSharedMemory(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* bytes,
                                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListSharedMemory(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* bytes,
                                             grpc::ByteBuffer* response) override;

 private:
  const ServiceContext& services_;
};

}  // namespace castor::server
