#include "server/auth/access.h"

#include <utility>

#include "server/logging.h"

namespace castor::server {

absl::StatusOr<Access> Access::Open(const AccessOptions& options) {
  Access access;
  if (options.tls.on()) {
    auto certificates = OpenCertificates(options.tls);
    if (!certificates.ok()) return certificates.status();
    access.certificates = *std::move(certificates);
  }
  if (!options.callers.empty()) {
    auto callers = OpenCallers(options.callers);
    if (!callers.ok()) return callers.status();
    access.callers = *std::move(callers);
  }
  return access;
}

AccessWatch::AccessWatch(Periodic& periodic, Access& access,
                         std::chrono::milliseconds check_interval, AccessMetrics& metrics,
                         std::function<void(const CallerTable&)> on_callers)
    : access_(access), metrics_(metrics), on_callers_(std::move(on_callers)) {
  if (access_.certificates != nullptr) {
    metrics_.Watched(Reloaded::kCertificates);
    ShowExpiry();
  }
  if (access_.callers != nullptr) {
    metrics_.Watched(Reloaded::kCallers);
    on_callers_(*access_.callers->current());
  }
  task_.emplace(periodic, check_interval, [this, check_interval] {
    Check();
    return check_interval;
  });
}

void AccessWatch::ShowExpiry() {
  const std::shared_ptr<const Certificates> now = access_.certificates->current();
  metrics_.SetExpiry("server", now->expires);
  if (!now->client_ca.empty()) metrics_.SetExpiry("client_ca", now->client_ca_expires);
}

template <typename Live>
bool AccessWatch::Refresh(Live& live, Standing& standing) {
  const absl::StatusOr<bool> changed = live.Refresh();
  const std::string why(changed.status().message());
  metrics_.SetStanding(standing.what, !changed.ok());
  if (!changed.ok() && why != standing.refused_for) {
    metrics_.Refused(standing.what);
    LogError("changed files are refused; the previous content stays in use",
             {{"what", NameOf(standing.what)}, {"why", why}});
  }
  standing.refused_for = why;
  if (!changed.ok() || !*changed) return false;
  LogInfo("changed files are in use", {{"what", NameOf(standing.what)}});
  return true;
}

void AccessWatch::Check() {
  // Counted last: whatever reads the count must find the new files in use.
  if (access_.certificates != nullptr && Refresh(*access_.certificates, certificates_)) {
    ShowExpiry();
    metrics_.Taken(Reloaded::kCertificates);
  }
  if (access_.callers != nullptr && Refresh(*access_.callers, callers_)) {
    on_callers_(*access_.callers->current());
    metrics_.Taken(Reloaded::kCallers);
  }
}

}  // namespace castor::server
