// A device that computes on the calling thread alone and reports the processor time that it takes:
// for machines that are not quiet.
#pragma once

#include <time.h>

#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace castor::bench {

class ProcessorTime final : public Device {
 public:
  explicit ProcessorTime(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  const DeviceInfo& info() const override { return device_->info(); }
  std::shared_ptr<HostPool> host_pool() const override { return device_->host_pool(); }
  std::span<const attention::Variant> variants() const override { return device_->variants(); }
  MemoryStats memory() const override { return device_->memory(); }
  bool healthy() const override { return device_->healthy(); }
  int depth() const override { return device_->depth(); }
  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource& source) override {
    return device_->LoadModel(source);
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl& control) override {
    return Timed([&] { return device_->Launch(batch, control); });
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch& batch,
                                                    RunControl& control) override {
    return Timed([&] { return device_->Launch(batch, control); });
  }

 private:
  class Finished final : public Execution {
   public:
    explicit Finished(const ExecutionTimes& times) : times_(times) {}
    absl::StatusOr<ExecutionTimes> Wait() override { return times_; }

   private:
    const ExecutionTimes times_;
  };

  static double Now() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
  }

  template <typename Body>
  absl::StatusOr<std::unique_ptr<Execution>> Timed(Body body) {
    const double start = Now();
    auto execution = body();
    const double us = Now() - start;
    if (!execution.ok()) return execution;
    auto times = (*execution)->Wait();
    if (!times.ok()) return times.status();
    times->compute_us = us;
    return std::make_unique<Finished>(*times);
  }

  const std::unique_ptr<Device> device_;
};

}  // namespace castor::bench
