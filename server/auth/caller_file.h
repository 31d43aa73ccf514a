// The file of callers (--auth-tokens), in TOML:
//
//   [[caller]]
//   name = "search"                  # also the tenant's name
//   sha256 = "5e88..."               # of its token; or, of its certificate:
//   # san = "spiffe://example/search"  a subject alternative name, URI or DNS
//   allow = ["castor.v1.EncoderService", "castor.v1.AttentionService/Attend"]   # or ["*"]: all
//   expires = 2027-05-01T00:00:00Z   # or "never"
//
//   [tenant.search]                  # optional, and so is each of:
//   weight = 2
//   max_queued_requests = 100
//   max_queued_tokens = 200000
//   max_queued_bytes = "256MiB"
//
//   [end]                            # the last line
//
// A name may have several entries: an old token and the new one that replaces it. A file with a
// part missing never grants more: a file that was cut short has no last line, and an entry without
// `allow` or `expires` is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/auth/caller_table.h"
#include "server/auth/live_files.h"

namespace castor::server {

inline constexpr std::string_view kEndOfCallers = "[end]";
inline constexpr std::string_view kNever = "never";  // `expires`
// Values of `allow` that are not services or methods: every method; reading /metrics, which "*"
// does not include.
inline constexpr std::string_view kEveryMethod = "*";
inline constexpr std::string_view kMetricsPermission = "metrics";

// INVALID_ARGUMENT says what is wrong and in which line. Unknown keys, names that no service or
// method has, credentials that are given twice and a file without callers are wrong.
absl::StatusOr<CallerTable> ParseCallers(std::string_view text);

// The file with one more `entry`, a [[caller]]; `file` may be empty. Errors as ParseCallers'.
absl::StatusOr<std::string> AddCaller(std::string_view file, std::string_view entry);

using LiveCallers = LiveFiles<CallerTable>;
absl::StatusOr<std::unique_ptr<LiveCallers>> OpenCallers(const std::string& path);

}  // namespace castor::server
