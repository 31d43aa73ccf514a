#include "server/codec/regions.h"

#include <utility>

namespace castor::server {

absl::Status RequestRegions::Resolve(const wire::SharedMemoryRef& ref, std::string_view field,
                                     OutputRange* out) const {
  auto region = registry_->Find(tenant_, ref.region, field);
  if (!region.ok()) return region.status();
  const auto range = (*region)->Range(ref.offset, ref.size, field);
  if (!range.ok()) return range.status();
  *out = {.region = *std::move(region), .offset = ref.offset, .file = *range};
  return absl::OkStatus();
}

absl::Status RequestRegions::Resolve(const wire::SharedMemoryRef& ref, std::string_view field,
                                     FileRange* out) {
  OutputRange range;
  if (absl::Status s = Resolve(ref, field, &range); !s.ok()) return s;
  *out = range.file;
  input_bytes_ += static_cast<uint64_t>(range.file.size);
  held_.push_back(std::move(range.region));
  return absl::OkStatus();
}

}  // namespace castor::server
