#include "server/auth/live_files.h"

#include <cstdint>

#include "absl/strings/strip.h"
#include "engine/base/regular_file.h"

namespace castor::server {
namespace {

absl::StatusOr<std::vector<std::string>> ReadOnce(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  texts.reserve(paths.size());
  for (const std::string& path : paths) {
    if (path.empty()) {
      texts.emplace_back();
      continue;
    }
    absl::StatusOr<std::string> text = ReadSmallFile(path);
    if (!text.ok()) {
      return absl::InvalidArgumentError(path + ": " + std::string(text.status().message()));
    }
    texts.push_back(*std::move(text));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadTogether(const std::vector<std::string>& paths) {
  auto texts = ReadOnce(paths);
  if (!texts.ok()) return texts.status();
  const auto again = ReadOnce(paths);
  if (again.ok() && *again == *texts) return texts;
  return absl::AbortedError("the files changed while they were read");
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StripPrefix(text.status().message(), path + ": "));
}

}  // namespace castor::server
