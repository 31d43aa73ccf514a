// An attention-only device whose launches are done when they return. Subclasses decide what it
// serves and how it computes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/device/device.h"

namespace castor {

class InstantDevice : public Device {
 public:
  explicit InstantDevice(std::string name) { info_.name = std::move(name); }

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return pool_; }
  MemoryStats memory() const override { return {}; }
  bool healthy() const override { return true; }
  int depth() const override { return 1; }
  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch&, RunControl&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  using Device::Launch;

 protected:
  static std::unique_ptr<Execution> Finished(const ExecutionTimes& times) {
    class Done : public Execution {
     public:
      explicit Done(const ExecutionTimes& times) : times_(times) {}
      absl::StatusOr<ExecutionTimes> Wait() override { return times_; }

     private:
      const ExecutionTimes times_;
    };
    return std::make_unique<Done>(times);
  }

 private:
  DeviceInfo info_;
  const std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), int64_t{64} << 20);
};

}  // namespace castor
