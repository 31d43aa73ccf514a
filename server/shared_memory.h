// Shared-memory objects of the machine that requests may refer to, by the names under which callers
// registered them. Independent of the protocol: each has its own service on top.
//
// A region belongs to the tenant that registered it: no other tenant finds it. With authenticated
// callers a tenant also cannot open another's objects: keys begin with the tenant's name.
//
// A region is a file descriptor and a range, never a mapping. Its owner may truncate the object at
// any time. In a mapping, every access beyond the new end would be SIGBUS; pread and pwrite return
// a short count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/request.h"

namespace castor::server {

// As the caller registered it; sizes in bytes.
struct RegionInfo {
  std::string name;  // its name in requests
  std::string key;   // the object's name for shm_open: "/NAME"
  int64_t offset = 0;
  int64_t size = 0;
};

// One registered region. Immutable; any thread may use it. A request holds a shared_ptr to it, so
// unregistering closes nothing that is in use.
class SharedRegion {
 public:
  // Opens the object. INVALID_FIELD at "name", "key", "offset" or "size"; TOO_MANY_REGIONS when the
  // process has no descriptor left.
  static absl::StatusOr<std::shared_ptr<const SharedRegion>> Open(RegionInfo info);

  // For a file that is already open: owns the descriptor.
  SharedRegion(RegionInfo info, int descriptor);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const RegionInfo& info() const { return info_; }

  // Translates the range [offset, offset + size) of the region into one of its file, which is open
  // as long as this object lives. INVALID_FIELD at FIELD.offset or FIELD.size when it leaves the
  // region.
  absl::StatusOr<FileRange> Range(int64_t offset, int64_t size, std::string_view field) const;

 private:
  const RegionInfo info_;
  const int descriptor_;
};

// Writes to a range of a region's file. INVALID_FIELD at `field` when the object ends before the
// range does, which a write must not undo; OUT_OF_MEMORY when the system has no memory to back it.
absl::Status WriteRange(const FileRange& range, std::span<const std::byte> bytes,
                        std::string_view field);

// The registered regions. Any thread may call any method; one lock guards the map, and no system
// call is made under it.
class SharedMemory {
 public:
  // `isolated`: tenants are known by more than what they say, and are kept apart: by the keys of
  // their objects, and no tenant may take more than three quarters of the regions.
  explicit SharedMemory(int64_t max_regions, bool isolated = false)
      : max_regions_(max_regions), isolated_(isolated) {}

  // 0: shared memory is off.
  int64_t max_regions() const { return max_regions_; }

  // OK, or SHARED_MEMORY_OFF naming the flag that turns it on.
  absl::Status CheckOn() const;

  // The prefix of the keys of a tenant's objects: "/", or "/TENANT:".
  std::string KeyPrefix(std::string_view tenant) const;
  // INVALID_FIELD at "key" when that is not so. A tenant whose name has a slash can have none.
  absl::Status CheckKey(std::string_view tenant, std::string_view key) const;

  // REGION_EXISTS, TOO_MANY_REGIONS.
  absl::Status Add(std::string_view tenant, std::shared_ptr<const SharedRegion> region)
      ABSL_LOCKS_EXCLUDED(mu_);

  // REGION_NOT_FOUND.
  absl::Status Remove(std::string_view tenant, std::string_view name) ABSL_LOCKS_EXCLUDED(mu_);

  // For a reference at `field`, such as "output": SHARED_MEMORY_OFF there, REGION_NOT_FOUND at
  // FIELD.region.
  absl::StatusOr<std::shared_ptr<const SharedRegion>> Find(std::string_view tenant,
                                                           std::string_view name,
                                                           std::string_view field) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // The tenant's, in order of name.
  std::vector<RegionInfo> List(std::string_view tenant) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Regions = std::map<std::string, std::shared_ptr<const SharedRegion>, std::less<>>;

  const int64_t max_regions_;
  const bool isolated_;

  mutable Mutex mu_;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  // Only tenants that have regions.
  std::map<std::string, Regions, std::less<>> tenants_ ABSL_GUARDED_BY(mu_);
};

// The regions as one tenant sees them, for a request of its own. `registry` and the name's text
// must outlive it.
struct TenantRegions {
  const SharedMemory& registry;
  std::string_view tenant;
};

}  // namespace castor::server
