#include "server/options/small_file.h"

#include <cstdint>

#include "absl/strings/strip.h"
#include "engine/base/regular_file.h"

namespace castor::server {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StripPrefix(text.status().message(), path + ": "));
}

}  // namespace castor::server
