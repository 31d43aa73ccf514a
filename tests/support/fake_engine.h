// An engine without a device, for tests of the code around it. It admits every request, answers
// Attend with the request's own `value` and Encode with one row per text or sequence, and can be
// made to stall, fail, refuse and break. One worker thread answers the requests one after another.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "tests/support/engine_of_models.h"

namespace castor {

class FakeEngine final : public EngineOfModels {
 public:
  FakeEngine();
  ~FakeEngine() override;

  // ---- controls for tests

  // While held, admitted requests wait; a waiting request is cancelled at once.
  void Hold() { SetHeld(true, running_held_); }
  // While held, the next request runs without finishing; Cancel does not reach it.
  void HoldRunning() { SetHeld(waiting_held_, true); }
  void Release() { SetHeld(false, false); }
  // Submit returns this; OK to admit again.
  void RefuseWith(absl::Status status);
  // Requests are answered with this from now on; OK to succeed again.
  void FailWith(absl::Status status);
  // As after a device fault: unhealthy, and every answer is INTERNAL.
  void Break();
  // Of options(). Before it serves.
  void SetBudgets(int64_t requests, int64_t bytes) {
    options_.max_queued_requests = requests;
    options_.max_queued_bytes = bytes;
  }
  // What stats() returns from now on instead of its own counts. Not while other threads call it.
  EngineStats& fixed_stats() { return stats_.has_value() ? *stats_ : stats_.emplace(); }

  // ---- waits for tests; false on a timeout of 20 s

  bool AwaitWaiting(int64_t requests);  // exactly this number wait
  bool AwaitRunning();                  // one is held running
  bool AwaitCancels(int64_t calls);     // at least this number of calls of Cancel

  int64_t admitted() const;
  int64_t answered() const;
  std::optional<CallContext> last_call() const;  // of the last admitted request
  // What SetTenants was given last; it applies nothing.
  std::optional<std::map<std::string, TenantTerms>> tenants() const;

  // ---- Engine

  absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) override;
  absl::StatusOr<Ticket> Submit(EncodeRequest request, EncodeCompletion done) override;
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string&, int64_t) override {
    return nullptr;  // all that is asked for
  }
  void Cancel(Ticket ticket) override;
  void SetTenants(std::map<std::string, TenantTerms> tenants) override;
  EngineInfo info() const override { return info_; }
  const EngineOptions& options() const override { return options_; }
  EngineStats stats() const override;
  Progress progress() const override;
  bool healthy() const override;
  bool Drain(TimePoint deadline) override;

 private:
  struct Entry {
    Ticket ticket = 0;
    // Answers with a result, or with an error.
    absl::AnyInvocable<void(const absl::Status&) &&> answer;
  };

  void SetHeld(bool waiting, bool running);
  absl::StatusOr<Ticket> Admit(const CallContext& call,
                               absl::AnyInvocable<void(const absl::Status&) &&> answer);
  template <typename Condition>
  bool Await(Condition condition);
  void Work();

  EngineInfo info_;
  EngineOptions options_;
  std::optional<EngineStats> stats_;
  std::shared_ptr<HostPool> pool_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Entry> waiting_ ABSL_GUARDED_BY(mu_);
  std::optional<CallContext> last_call_ ABSL_GUARDED_BY(mu_);
  std::optional<std::map<std::string, TenantTerms>> tenants_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool held_running_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  int64_t admitted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t answered_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t cancels_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> waiting_held_ = false;  // written under mu_
  std::atomic<bool> running_held_ = false;  // written under mu_
  std::thread worker_;
};

}  // namespace castor
