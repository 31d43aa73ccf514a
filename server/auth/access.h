// The listener's certificates and the file of callers, as last read without an error. AccessWatch
// keeps them up to date.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/auth/caller_file.h"
#include "server/lifecycle/periodic.h"
#include "server/metrics/metrics_access.h"
#include "server/options/access_options.h"
#include "server/tls/certificates.h"

namespace castor::server {

struct Access {
  std::unique_ptr<LiveCertificates> certificates{};  // null: plaintext
  std::unique_ptr<LiveCallers> callers{};            // null: no such file

  // Reads the files. INVALID_ARGUMENT says what is wrong with one; the server then does not start.
  static absl::StatusOr<Access> Open(const AccessOptions& options);
};

// Reads the files of an Access again and again, from construction to destruction. Metrics and log
// say what changed.
class AccessWatch {
 public:
  // Calls `on_callers` with the table of callers, here once and then on the thread of `periodic`,
  // whenever it changes. `access`, `metrics` and what `on_callers` uses must outlive this object.
  AccessWatch(Periodic& periodic, Access& access, std::chrono::milliseconds check_interval,
              AccessMetrics& metrics, std::function<void(const CallerTable&)> on_callers);

 private:
  // Why the files were refused at the last check, so that the log says it once.
  struct Standing {
    Reloaded what;
    std::string refused_for = {};
  };
  // Whether the content has changed.
  template <typename Live>
  bool Refresh(Live& live, Standing& standing);
  void ShowExpiry();
  void Check();

  Access& access_;
  AccessMetrics& metrics_;
  const std::function<void(const CallerTable&)> on_callers_;
  Standing certificates_{Reloaded::kCertificates};
  Standing callers_{Reloaded::kCallers};
  std::optional<Periodic::Task> task_;  // last: it uses everything above
};

}  // namespace castor::server
