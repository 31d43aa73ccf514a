#include "server/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace castor::server {
namespace {

constexpr size_t kMaxName = 256;
constexpr size_t kMaxKey = 255;  // NAME_MAX, and the slash in front

std::string Text(int error) { return std::generic_category().message(error); }

absl::Status CheckInfo(const RegionInfo& info) {
  if (info.name.empty()) return InvalidField("name", "missing");
  if (info.name.size() > kMaxName) {
    return InvalidField("name", "longer than " + std::to_string(kMaxName) + " bytes");
  }
  const std::string& key = info.key;
  if (key.size() < 2 || key.size() > kMaxKey || key.front() != '/' ||
      key.find('/', 1) != std::string::npos || key.find('\0') != std::string::npos || key == "/." ||
      key == "/..") {
    return InvalidField("key", "must be the name of a shared-memory object, \"/NAME\"");
  }
  if (info.offset < 0) return InvalidField("offset", "must not be negative");
  if (info.size < 1) return InvalidField("size", "must be at least 1");
  return absl::OkStatus();
}

absl::Status CannotOpen(const std::string& key, int error) {
  if (error == EMFILE || error == ENFILE) {
    return MakeError(Reason::kTooManyRegions,
                     "the server has no file descriptor left for another region");
  }
  return InvalidField("key", "cannot open \"" + key + "\" for reading and writing: " + Text(error));
}

// Its size in bytes; nothing if it is not a regular file.
std::optional<int64_t> SizeOf(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_size;
}

std::string NotFound(std::string_view name) {
  return "no shared-memory region is registered as \"" + std::string(name) + "\"";
}

constexpr char kOff[] = "shared memory is off: the server was started without --shared-memory";

}  // namespace

absl::StatusOr<std::shared_ptr<const SharedRegion>> SharedRegion::Open(RegionInfo info) {
  if (absl::Status s = CheckInfo(info); !s.ok()) return s;
  // Without O_NONBLOCK a pipe of that name could block the thread.
  const int descriptor =
      shm_open(info.key.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (descriptor < 0) return CannotOpen(info.key, errno);
  auto region = std::make_shared<const SharedRegion>(std::move(info), descriptor);
  const std::optional<int64_t> size = SizeOf(descriptor);
  if (!size) return InvalidField("key", "is not a shared-memory object");
  const RegionInfo& range = region->info();
  if (range.offset > *size || range.size > *size - range.offset) {
    return InvalidField(
        "size", "the object has " + std::to_string(*size) + " bytes, too few for a region of " +
                    std::to_string(range.size) + " at " + std::to_string(range.offset));
  }
  return region;
}

SharedRegion::SharedRegion(RegionInfo info, int descriptor)
    : info_(std::move(info)), descriptor_(descriptor) {}

SharedRegion::~SharedRegion() { close(descriptor_); }

absl::StatusOr<FileRange> SharedRegion::Range(int64_t offset, int64_t size,
                                              std::string_view field) const {
  const auto outside = [&](const char* which, int64_t value) {
    return InvalidField(std::string(field) + "." + which,
                        "is " + std::to_string(value) + ", outside the " +
                            std::to_string(info_.size) + " bytes of region \"" + info_.name + "\"");
  };
  if (offset < 0 || offset > info_.size) return outside("offset", offset);
  if (size < 0 || size > info_.size - offset) return outside("size", size);
  return FileRange{.descriptor = descriptor_, .offset = info_.offset + offset, .size = size};
}

absl::Status WriteRange(const FileRange& range, std::span<const std::byte> bytes,
                        std::string_view field) {
  // A write beyond the end would lengthen the object again. If the owner truncates it between this
  // check and the write, it gets its old length back.
  if (SizeOf(range.descriptor).value_or(0) < range.offset + range.size) {
    return InvalidField(field, "the shared-memory object was truncated after it was registered");
  }
  int64_t offset = range.offset;
  while (!bytes.empty()) {
    const ssize_t put = pwrite(range.descriptor, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == ENOSPC || errno == ENOMEM)) {
      return MakeError(Reason::kOutOfMemory, std::string(field) + ": out of memory for the region");
    }
    if (put <= 0) return InvalidField(field, "cannot be written: " + Text(errno));
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += put;
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::CheckOn() const {
  return max_regions_ > 0 ? absl::OkStatus() : MakeError(Reason::kSharedMemoryOff, kOff);
}

std::string SharedMemory::KeyPrefix(std::string_view tenant) const {
  std::string prefix = "/";
  if (isolated_) prefix.append(tenant).append(":");
  return prefix;
}

absl::Status SharedMemory::CheckKey(std::string_view tenant, std::string_view key) const {
  if (!isolated_ || key.starts_with(KeyPrefix(tenant))) return absl::OkStatus();
  return InvalidField("key", "must begin with \"" + KeyPrefix(tenant) +
                                 "\": callers can use only objects under their own name");
}

absl::Status SharedMemory::Add(std::string_view tenant,
                               std::shared_ptr<const SharedRegion> region) {
  const std::string& name = region->info().name;
  MutexLock lock(mu_);
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second.contains(name)) {
    return MakeError(Reason::kRegionExists,
                     "a region named \"" + name + "\" is already registered");
  }
  if (count_ >= max_regions_) {
    return MakeError(Reason::kTooManyRegions, "too many regions: this server registers at most " +
                                                  std::to_string(max_regions_));
  }
  const int64_t share = isolated_ ? std::max<int64_t>(max_regions_ * 3 / 4, 1) : max_regions_;
  if (found != tenants_.end() && static_cast<int64_t>(found->second.size()) >= share) {
    return MakeError(Reason::kTooManyRegions, "the caller has " + std::to_string(share) +
                                                  " regions, the most that one caller may have");
  }
  Regions& regions = found != tenants_.end() ? found->second : tenants_[std::string(tenant)];
  regions.emplace(name, std::move(region));
  ++count_;
  return absl::OkStatus();
}

absl::Status SharedMemory::Remove(std::string_view tenant, std::string_view name) {
  Regions::node_type removed;  // closes its descriptor after the lock is released
  MutexLock lock(mu_);
  const auto owner = tenants_.find(tenant);
  if (owner == tenants_.end()) return MakeError(Reason::kRegionNotFound, NotFound(name));
  const auto found = owner->second.find(name);
  if (found == owner->second.end()) return MakeError(Reason::kRegionNotFound, NotFound(name));
  removed = owner->second.extract(found);
  if (owner->second.empty()) tenants_.erase(owner);
  --count_;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const SharedRegion>> SharedMemory::Find(
    std::string_view tenant, std::string_view name, std::string_view field) const {
  if (!CheckOn().ok()) return InvalidField(Reason::kSharedMemoryOff, field, kOff);
  MutexLock lock(mu_);
  if (const auto owner = tenants_.find(tenant); owner != tenants_.end()) {
    if (const auto found = owner->second.find(name); found != owner->second.end()) {
      return found->second;
    }
  }
  return InvalidField(Reason::kRegionNotFound, std::string(field) + ".region", NotFound(name));
}

std::vector<RegionInfo> SharedMemory::List(std::string_view tenant) const {
  std::vector<RegionInfo> infos;
  MutexLock lock(mu_);
  const auto owner = tenants_.find(tenant);
  if (owner == tenants_.end()) return infos;
  infos.reserve(owner->second.size());
  for (const auto& [name, region] : owner->second) infos.push_back(region->info());
  return infos;
}

}  // namespace castor::server
