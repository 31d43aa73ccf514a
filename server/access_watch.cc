#include "server/access_watch.h"

#include <utility>

#include "server/logging.h"

namespace castor::server {

AccessWatch::AccessWatch(Access& access, std::chrono::milliseconds look_every,
                         AccessMetrics& metrics, std::function<void(const CallerTable&)> on_callers)
    : access_(access),
      look_every_(look_every),
      metrics_(metrics),
      on_callers_(std::move(on_callers)) {
  if (access_.certificates != nullptr) {
    metrics_.Watched(Reloaded::kCertificates);
    ShowExpiry();
  }
  if (access_.callers != nullptr) {
    metrics_.Watched(Reloaded::kCallers);
    on_callers_(*access_.callers->current());
  }
  thread_ = std::thread([this] { Run(); });
}

AccessWatch::~AccessWatch() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void AccessWatch::LookNow() {
  MutexLock lock(mu_);
  look_now_ = true;
  changed_.NotifyAll();
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
    LogError("changed files are refused; what was read before stays in use",
             {{"what", NameOf(standing.what)}, {"why", why}});
  }
  standing.refused_for = why;
  if (!changed.ok() || !*changed) return false;
  LogInfo("changed files are in use", {{"what", NameOf(standing.what)}});
  return true;
}

void AccessWatch::Run() {
  Standing certificates{Reloaded::kCertificates};
  Standing callers{Reloaded::kCallers};
  MutexLock lock(mu_);
  while (!stopped_) {
    if (!look_now_) changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + look_every_);
    if (stopped_) return;
    look_now_ = false;
    mu_.Unlock();
    // Counted last: who sees the count sees what came with it.
    if (access_.certificates != nullptr && Refresh(*access_.certificates, certificates)) {
      ShowExpiry();
      metrics_.Taken(Reloaded::kCertificates);
    }
    if (access_.callers != nullptr && Refresh(*access_.callers, callers)) {
      on_callers_(*access_.callers->current());
      metrics_.Taken(Reloaded::kCallers);
    }
    mu_.Lock();
  }
}

}  // namespace castor::server
