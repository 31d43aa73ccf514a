// Files that people write for the server: configuration, certificates, callers.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace castor::server {

// The whole of a regular file of at most 1 MiB. INVALID_ARGUMENT says why not, without the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace castor::server
