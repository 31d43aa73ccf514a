// Who gets in, as files say: the listener's certificates and the callers, kept up to date.
//
//   Open     reads the files; the server does not start with wrong ones
//   Watch    a thread looks at them every second from now on; destruction ends it
//
// Readers ask certificates() and callers() for what holds now, on any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/auth/caller_file.h"
#include "server/metrics_access.h"
#include "server/tls/certificates.h"

namespace castor::server {

struct AccessOptions {
  TlsFiles tls{};
  std::string callers{};                        // the file of auth/caller_file.h; empty: none
  std::chrono::milliseconds look_every{1000};   // at the files

  // Whether callers must say who they are.
  bool asks() const { return !callers.empty() || !tls.client_ca.empty(); }
};

class Access {
 public:
  static absl::StatusOr<std::unique_ptr<Access>> Open(AccessOptions options);
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  // Null: the listener speaks plaintext.
  const LiveCertificates* certificates() const { return certificates_.get(); }
  // Null: there is no such file.
  const LiveCallers* callers() const { return callers_.get(); }

  // Calls `on_callers` with the table, now and whenever it changes; later on the thread of this
  // object. `metrics` must outlive it. Call at most once.
  void Watch(AccessMetrics& metrics, std::function<void(const CallerTable&)> on_callers);

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // One of the two: what it was refused for, so that the log says it once.
  struct Standing {
    Reloaded what;
    std::string refused_for = {};
  };
  template <typename Live>
  bool Refresh(Live& live, Standing& standing);
  void ShowExpiry();
  void Run();

  const AccessOptions options_;
  std::unique_ptr<LiveCertificates> certificates_;
  std::unique_ptr<LiveCallers> callers_;
  AccessMetrics* metrics_ = nullptr;
  std::function<void(const CallerTable&)> on_callers_;

  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace castor::server
