#include <utility>

#include "castor/v1/shared_memory.pb.h"
#include "server/services/services.h"
#include "server/services/typed_call.h"

namespace castor::server {
namespace {

absl::Status Register(const ServiceContext& services, const Caller& caller,
                      const v1::RegisterSharedMemoryRequest& request) {
  SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  if (absl::Status s = regions.CheckKey(caller.tenant, request.key()); !s.ok()) return s;
  auto region = SharedRegion::Open({.name = request.name(),
                                    .key = request.key(),
                                    .offset = request.offset(),
                                    .size = request.size()});
  if (!region.ok()) return region.status();
  if (absl::Status s = regions.Add(caller.tenant, *std::move(region)); !s.ok()) return s;
  services.metrics.RegionAdded();
  return absl::OkStatus();
}

absl::Status Unregister(const ServiceContext& services, const Caller& caller,
                        const v1::UnregisterSharedMemoryRequest& request) {
  SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  if (absl::Status s = regions.Remove(caller.tenant, request.name()); !s.ok()) return s;
  services.metrics.RegionRemoved();
  return absl::OkStatus();
}

absl::Status List(const ServiceContext& services, const Caller& caller,
                  v1::ListSharedMemoryResponse* answer) {
  const SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  for (const RegionInfo& info : regions.List(caller.tenant)) {
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
  AddMethod("/castor.v1.SharedMemoryService/RegisterSharedMemory",
            TypedMethod<v1::RegisterSharedMemoryRequest, v1::RegisterSharedMemoryResponse>(
                services,
                [&services](const Caller& caller, const v1::RegisterSharedMemoryRequest& request,
                            v1::RegisterSharedMemoryResponse*) {
                  return Register(services, caller, request);
                }));
  AddMethod("/castor.v1.SharedMemoryService/UnregisterSharedMemory",
            TypedMethod<v1::UnregisterSharedMemoryRequest, v1::UnregisterSharedMemoryResponse>(
                services,
                [&services](const Caller& caller, const v1::UnregisterSharedMemoryRequest& request,
                            v1::UnregisterSharedMemoryResponse*) {
                  return Unregister(services, caller, request);
                }));
  AddMethod("/castor.v1.SharedMemoryService/ListSharedMemory",
            TypedMethod<v1::ListSharedMemoryRequest, v1::ListSharedMemoryResponse>(
                services, [&services](const Caller& caller, const v1::ListSharedMemoryRequest&,
                                      v1::ListSharedMemoryResponse* answer) {
                  return List(services, caller, answer);
                }));
}

}  // namespace castor::server
