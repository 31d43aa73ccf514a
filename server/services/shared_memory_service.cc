#include "server/services/shared_memory_service.h"

#include <utility>

#include "server/services/typed_call.h"

namespace castor::server {

grpc::ServerUnaryReactor* SharedMemoryService::RegisterSharedMemory(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  return AnswerTyped<v1::RegisterSharedMemoryRequest, v1::RegisterSharedMemoryResponse>(
      services_, Method::kRegisterSharedMemory, context, bytes, response,
      [this](const v1::RegisterSharedMemoryRequest& request,
             v1::RegisterSharedMemoryResponse*) -> absl::Status {
        SharedMemory& regions = services_.shared_memory;
        if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
        auto region = SharedRegion::Open({.name = request.name(),
                                          .key = request.key(),
                                          .offset = request.offset(),
                                          .size = request.size()});
        if (!region.ok()) return region.status();
        if (absl::Status s = regions.Add(*std::move(region)); !s.ok()) return s;
        services_.metrics.RegionAdded();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SharedMemoryService::UnregisterSharedMemory(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  return AnswerTyped<v1::UnregisterSharedMemoryRequest, v1::UnregisterSharedMemoryResponse>(
      services_, Method::kUnregisterSharedMemory, context, bytes, response,
      [this](const v1::UnregisterSharedMemoryRequest& request,
             v1::UnregisterSharedMemoryResponse*) -> absl::Status {
        SharedMemory& regions = services_.shared_memory;
        if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
        if (absl::Status s = regions.Remove(request.name()); !s.ok()) return s;
        services_.metrics.RegionRemoved();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SharedMemoryService::ListSharedMemory(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
    grpc::ByteBuffer* response) {
  return AnswerTyped<v1::ListSharedMemoryRequest, v1::ListSharedMemoryResponse>(
      services_, Method::kListSharedMemory, context, bytes, response,
      [this](const v1::ListSharedMemoryRequest&,
             v1::ListSharedMemoryResponse* answer) -> absl::Status {
        const SharedMemory& regions = services_.shared_memory;
        if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
        for (const RegionInfo& info : regions.List()) {
          v1::SharedMemoryRegion* region = answer->add_regions();
          region->set_name(info.name);
          region->set_key(info.key);
          region->set_offset(info.offset);
          region->set_size(info.size);
        }
        return absl::OkStatus();
      });
}

}  // namespace castor::server
