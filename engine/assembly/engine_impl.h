// The engine behind engine/engine.h: puts the parts of the other folders together. engine/DESIGN.md
// walks a request through them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/assembly/internal.h"
#include "engine/automatic/plan.h"
#include "engine/base/guarded.h"
#include "engine/engine.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/ledger.h"
#include "engine/loop/completions.h"
#include "engine/loop/engine_loop.h"
#include "engine/loop/tokenizers.h"

namespace castor {

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, EngineParts parts);
  ~EngineImpl() override;

  // Opens the device and loads the models. Called once, before anything else.
  absl::Status Start();

  absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) override;
  absl::StatusOr<Ticket> Submit(EncodeRequest request, EncodeCompletion done) override;
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& tenant, int64_t bytes) override {
    return Guarded([&] { return ledger_->Reserve(tenant, bytes); });
  }
  void Cancel(Ticket ticket) override { ledger_->Cancel(ticket); }
  void SetTenants(std::map<std::string, TenantTerms> tenants) override {
    ledger_->SetTenants(std::move(tenants));
  }
  EngineInfo info() const override { return info_; }
  const EngineOptions& options() const override { return options_; }
  EngineStats stats() const override;
  Progress progress() const override { return loop_.progress(); }
  bool healthy() const override { return loop_.healthy(); }
  bool Drain(TimePoint deadline) override;

 private:
  absl::StatusOr<Ticket> DoSubmit(AttentionRequest& request, AttentionCompletion& done);
  absl::StatusOr<Ticket> DoSubmit(EncodeRequest& request, EncodeCompletion& done);
  void SetEstimate(const Estimate& estimate, Job* job) const;
  absl::Status CheckCall(const CallContext& call, TimePoint now) const;

  const EngineOptions options_;
  EngineParts parts_;  // constant

  // In order of dependency: each may use those before it. Destroyed in reverse.
  Counters counters_;
  const std::shared_ptr<Ledger> ledger_;
  Completions completions_;
  EngineLoop loop_;
  FidelitySampling sampling_;
  std::thread deadlines_;

  // Constant after Start.
  bool started_ = false;
  EngineInfo info_;
  attention::PriceOf price_of_;
  std::shared_ptr<HostPool> host_pool_;
  std::optional<Tokenizers> tokenizers_;
};

}  // namespace castor
