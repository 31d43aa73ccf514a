#include "server/access.h"

#include <utility>

#include "server/logging.h"

namespace castor::server {

absl::StatusOr<std::unique_ptr<Access>> Access::Open(AccessOptions options) {
  auto access = std::unique_ptr<Access>(new Access(std::move(options)));
  if (access->options_.tls.on()) {
    auto certificates = OpenCertificates(access->options_.tls);
    if (!certificates.ok()) return certificates.status();
    access->certificates_ = *std::move(certificates);
  }
  if (!access->options_.callers.empty()) {
    auto callers = OpenCallers(access->options_.callers);
    if (!callers.ok()) return callers.status();
    access->callers_ = *std::move(callers);
  }
  return access;
}

Access::~Access() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Access::Watch(AccessMetrics& metrics, std::function<void(const CallerTable&)> on_callers) {
  metrics_ = &metrics;
  on_callers_ = std::move(on_callers);
  if (certificates_ != nullptr) {
    metrics.Watched(Reloaded::kCertificates);
    ShowExpiry();
  }
  if (callers_ != nullptr) {
    metrics.Watched(Reloaded::kCallers);
    on_callers_(*callers_->current());
  }
  if (certificates_ != nullptr || callers_ != nullptr) thread_ = std::thread([this] { Run(); });
}

void Access::ShowExpiry() {
  const std::shared_ptr<const Certificates> now = certificates_->current();
  metrics_->SetExpiry("server", now->expires);
  if (!now->client_ca.empty()) metrics_->SetExpiry("client_ca", now->client_ca_expires);
}

// Whether there is something new.
template <typename Live>
bool Access::Refresh(Live& live, Standing& standing) {
  const absl::StatusOr<bool> changed = live.Refresh();
  const std::string why(changed.status().message());
  metrics_->SetStanding(standing.what, !changed.ok());
  if (!changed.ok() && why != standing.refused_for) {
    metrics_->Refused(standing.what);
    LogError("changed files are refused; what was read before stays in use",
             {{"what", NameOf(standing.what)}, {"why", why}});
  }
  standing.refused_for = why;
  if (!changed.ok() || !*changed) return false;
  metrics_->Taken(standing.what);
  LogInfo("changed files are in use", {{"what", NameOf(standing.what)}});
  return true;
}

void Access::Run() {
  Standing certificates{Reloaded::kCertificates};
  Standing callers{Reloaded::kCallers};
  MutexLock lock(mu_);
  while (!stopped_) {
    changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + options_.look_every);
    if (stopped_) return;
    mu_.Unlock();
    if (certificates_ != nullptr && Refresh(*certificates_, certificates)) ShowExpiry();
    if (callers_ != nullptr && Refresh(*callers_, callers)) on_callers_(*callers_->current());
    mu_.Lock();
  }
}

}  // namespace castor::server
