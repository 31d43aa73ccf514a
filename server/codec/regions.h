// The shared-memory regions that one request refers to, held open until the request has been read.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/codec/decode_budget.h"
#include "server/codec/messages.h"
#include "server/shared_memory.h"

namespace castor::server {

// A range that an answer is written to, with the reference that named it.
struct OutputRange {
  std::shared_ptr<const SharedRegion> region;
  int64_t offset = 0;  // bytes from the region's start
  FileRange file;      // open as long as `region` is held
};

// The regions and the budget for decoding one request. Both must outlive its decoding.
struct DecodeScope : TenantRegions {
  DecodeBudget& budget;
};

// Used by one thread.
class RequestRegions {
 public:
  RequestRegions() = default;
  // The registry and the tenant's name must outlive this object.
  explicit RequestRegions(TenantRegions regions)
      : registry_(&regions.registry), tenant_(regions.tenant) {}

  // Finds the elements of an input; `field` is the reference's path. Errors are those of
  // SharedMemory::Find and SharedRegion::Range.
  absl::Status Resolve(const wire::SharedMemoryRef& ref, std::string_view field, FileRange* out);

  // The same for an output; `out` itself holds the region.
  absl::Status Resolve(const wire::SharedMemoryRef& ref, std::string_view field,
                       OutputRange* out) const;

  // Bytes of all inputs resolved so far. The sum can wrap only for requests that no engine admits.
  uint64_t input_bytes() const { return input_bytes_; }

 private:
  const SharedMemory* registry_ = nullptr;
  std::string_view tenant_;
  std::vector<std::shared_ptr<const SharedRegion>> held_;
  uint64_t input_bytes_ = 0;
};

}  // namespace castor::server
