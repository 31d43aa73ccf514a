#include "engine/base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace castor {
namespace {

// A mounted hierarchy: its folder `root` is visible at `point`.
struct CgroupMount {
  bool unified = false;  // version 2
  std::string root;
  std::string point;
  std::string controllers;  // version 1: the options that name them, such as "rw,cpu,cpuacct"
};

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::string part; const char& c : text) {
    if (c != separator) part += c;
    if (c == separator || &c == &text.back()) parts.push_back(std::exchange(part, {}));
  }
  return parts;
}

bool Contains(const std::string& list, std::string_view item) {
  const std::vector<std::string> items = Split(list, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// mountinfo writes a space in a path as \040.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 4], value, 8).ptr == &text[i + 4]) {
      out += static_cast<char>(value);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "36 35 98:0 /root /mount/point rw,noatime [optional fields] - type source options".
std::vector<CgroupMount> CgroupMounts(const std::string& root) {
  std::vector<CgroupMount> mounts;
  for (const std::string& line : Lines(root + "/proc/self/mountinfo")) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
    if (dash[1] != "cgroup" && dash[1] != "cgroup2") continue;
    mounts.push_back({dash[1] == "cgroup2", Unescape(fields[3]), Unescape(fields[4]), dash[3]});
  }
  return mounts;
}

// The path of the cgroup `path` below the mount: "" for the mount itself, or nullopt if the mount
// shows another part of the hierarchy.
std::optional<std::string> Below(const CgroupMount& mount, const std::string& path) {
  // A mount from outside of a cgroup namespace: its root is above ours by a number of levels whose
  // names are not known. The limits of that root apply to us.
  if (mount.root.starts_with("/..")) return "";
  if (path.find("/..") != std::string::npos) return std::nullopt;
  if (mount.root == "/") return path == "/" ? "" : path;
  if (!path.starts_with(mount.root)) return std::nullopt;
  const std::string rest = path.substr(mount.root.size());
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  return rest;
}

// The text as a number; nullopt if it is "max", or does not fit int64.
std::optional<int64_t> Number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

// The words of a file such as "200000 100000" or "max 100000".
std::vector<std::string> Words(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<std::string>(file), {}};
}

void LimitProcessors(const std::string& quota, const std::string& period, CgroupLimits& limits) {
  const std::optional<int64_t> allowed = Number(quota);
  const std::optional<int64_t> each = Number(period);
  if (!allowed || !each || *allowed <= 0 || *each <= 0) return;
  limits.processors =
      std::min(limits.processors, static_cast<double>(*allowed) / static_cast<double>(*each));
}

void LimitMemory(const std::vector<std::string>& words, CgroupLimits& limits) {
  const std::optional<int64_t> bytes = words.empty() ? std::nullopt : Number(words[0]);
  if (bytes && *bytes > 0) limits.memory_bytes = std::min(limits.memory_bytes, *bytes);
}

void ReadFolder(const std::string& folder, const CgroupMount& mount, CgroupLimits& limits) {
  if (mount.unified) {
    const std::vector<std::string> processors = Words(folder + "/cpu.max");
    if (processors.size() == 2) LimitProcessors(processors[0], processors[1], limits);
    LimitMemory(Words(folder + "/memory.max"), limits);
    return;
  }
  if (Contains(mount.controllers, "cpu")) {
    const std::vector<std::string> quota = Words(folder + "/cpu.cfs_quota_us");
    const std::vector<std::string> period = Words(folder + "/cpu.cfs_period_us");
    if (!quota.empty() && !period.empty()) LimitProcessors(quota[0], period[0], limits);
  }
  if (Contains(mount.controllers, "memory")) {
    LimitMemory(Words(folder + "/memory.limit_in_bytes"), limits);
  }
}

// Reads the limits of `path` and of all levels above it, any of which may be the lowest.
void ReadUpwards(const std::string& root, const CgroupMount& mount, const std::string& path,
                 CgroupLimits& limits) {
  std::optional<std::string> below = Below(mount, path);
  if (!below) return;
  for (;;) {
    ReadFolder(root + mount.point + *below, mount, limits);
    if (below->empty()) return;
    below->erase(below->rfind('/'));
  }
}

int AffinityCount() {
  // The kernel rejects a set that is smaller than its own, which may have more than 1024 bits.
  for (size_t processors = CPU_SETSIZE; processors <= size_t{1} << 20; processors *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(processors), [](cpu_set_t* allocated) { CPU_FREE(allocated); });
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
  }
  return 1;
}

int64_t ResourceLimit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kNone)) return kNone;
  return static_cast<int64_t>(limit.rlim_cur);
}

const CgroupLimits& OwnCgroupLimits() {
  static const CgroupLimits limits = ReadCgroupLimits("");
  return limits;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  const std::vector<CgroupMount> mounts = CgroupMounts(root);
  // "4:cpu,cpuacct:/path" in version 1, "0::/path" in version 2; a path may contain colons.
  for (const std::string& line : Lines(root + "/proc/self/cgroup")) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    for (const CgroupMount& mount : mounts) {
      bool same = mount.unified == controllers.empty();
      for (const std::string& controller : Split(controllers, ',')) {
        same = same && Contains(mount.controllers, controller);
      }
      if (same) ReadUpwards(root, mount, path, limits);
    }
  }
  return limits;
}

int AvailableProcessors() {
  static const int processors = [] {
    const double granted = std::ceil(OwnCgroupLimits().processors);
    return std::max(1, static_cast<int>(std::min<double>(AffinityCount(), granted)));
  }();
  return processors;
}

int64_t MemoryLimitBytes() {
  static const int64_t bytes = [] {
    const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    return std::min({physical, OwnCgroupLimits().memory_bytes, ResourceLimit(RLIMIT_AS),
                     ResourceLimit(RLIMIT_DATA)});
  }();
  return bytes;
}

int64_t MemoryShare(int64_t most, int64_t parts) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  return std::max(kMiB, std::min(most, MemoryLimitBytes() / parts) / kMiB * kMiB);
}

}  // namespace castor
