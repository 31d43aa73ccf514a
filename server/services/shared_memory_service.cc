#include "server/services/shared_memory_service.h"

#include <utility>

#include "castor/v1/shared_memory.pb.h"
#include "server/services/typed_call.h"

namespace castor::server {
namespace {

absl::Status Register(const ServiceContext& services,
                      const v1::RegisterSharedMemoryRequest& request) {
  SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  auto region = SharedRegion::Open({.name = request.name(),
                                    .key = request.key(),
                                    .offset = request.offset(),
                                    .size = request.size()});
  if (!region.ok()) return region.status();
  if (absl::Status s = regions.Add(*std::move(region)); !s.ok()) return s;
  services.metrics.RegionAdded();
  return absl::OkStatus();
}

absl::Status Unregister(const ServiceContext& services,
                        const v1::UnregisterSharedMemoryRequest& request) {
  SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  if (absl::Status s = regions.Remove(request.name()); !s.ok()) return s;
  services.metrics.RegionRemoved();
  return absl::OkStatus();
}

absl::Status List(const ServiceContext& services, v1::ListSharedMemoryResponse* answer) {
  const SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  for (const RegionInfo& info : regions.List()) {
    v1::SharedMemoryRegion* region = answer->add_regions();
    region->set_name(info.name);
    region->set_key(info.key);
    region->set_offset(info.offset);
    region->set_size(info.size);
  }
  return absl::OkStatus();
}

}  // namespace

SharedMemoryService::SharedMemoryService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod(
      "/castor.v1.SharedMemoryService/RegisterSharedMemory",
      TypedMethod<v1::RegisterSharedMemoryRequest, v1::RegisterSharedMemoryResponse>(
          services, Method::kRegisterSharedMemory,
          [&services](const v1::RegisterSharedMemoryRequest& request,
                      v1::RegisterSharedMemoryResponse*) { return Register(services, request); }));
  AddMethod("/castor.v1.SharedMemoryService/UnregisterSharedMemory",
            TypedMethod<v1::UnregisterSharedMemoryRequest, v1::UnregisterSharedMemoryResponse>(
                services, Method::kUnregisterSharedMemory,
                [&services](const v1::UnregisterSharedMemoryRequest& request,
                            v1::UnregisterSharedMemoryResponse*) {
                  return Unregister(services, request);
                }));
  AddMethod(
      "/castor.v1.SharedMemoryService/ListSharedMemory",
      TypedMethod<v1::ListSharedMemoryRequest, v1::ListSharedMemoryResponse>(
          services, Method::kListSharedMemory,
          [&services](const v1::ListSharedMemoryRequest&, v1::ListSharedMemoryResponse* answer) {
            return List(services, answer);
          }));
}

}  // namespace castor::server
