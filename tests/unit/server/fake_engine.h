// An engine that computes nothing: tests set what it reports.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace castor::server {

class FakeEngine : public Engine {
 public:
  FakeEngine() {
    info_.device.name = "cpu";
    info_.kernels = {{KernelName::kVanilla, {DType::kFloat32}, "cpu-sdpa"}};
  }

  absl::StatusOr<Ticket> Submit(AttentionRequest, AttentionCompletion) override {
    return absl::UnimplementedError("the fake engine computes nothing");
  }
  absl::StatusOr<Ticket> Submit(EncodeRequest, EncodeCompletion) override {
    return absl::UnimplementedError("the fake engine computes nothing");
  }
  void Cancel(Ticket) override {}
  const EngineInfo& info() const override { return info_; }
  const EngineOptions& options() const override { return options_; }
  EngineStats stats() const override { return stats_; }
  Progress progress() const override { return {}; }
  bool healthy() const override { return stats_.device_healthy; }
  bool Drain(TimePoint) override { return true; }

  EngineInfo info_;
  EngineOptions options_;
  EngineStats stats_;
};

}  // namespace castor::server
