// A device that tests control. It doubles queries, and its launches wait, fail, or run out of
// memory as told. Its encoders are FakeModels, whose output is the sum of a sequence's ids.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "engine/device/device.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {

// The test's control of the device. Thread-safe; shared with the device.
class FakeScript {
 public:
  // A batch's contents: one mark per request, its first query element or its first id.
  using Marks = std::vector<int>;

  // Set before the engine is created.
  int depth = 1;
  absl::Status open_status;
  // Makes the models that the device loads; by default FakeModels with the source's name.
  std::function<std::shared_ptr<encoder::Model>(const ModelSource&)> make_model =
      [](const ModelSource& source) { return std::make_shared<FakeModel>(source.name); };

  std::atomic<bool> healthy = true;
  std::atomic<double> compute_us = 2;  // what executions say they took

  // Called on the engine thread before a batch is computed; an error fails the batch.
  void SetHook(std::function<absl::Status(const Marks&)> hook) {
    MutexLock lock(mu_);
    hook_ = std::move(hook);
  }

  // Called on the engine thread when a batch is launched, with the run's control; on a device of
  // depth 1 after the other hook. An error fails the batch.
  void SetRun(std::function<absl::Status(const Marks&, RunControl&)> run) {
    MutexLock lock(mu_);
    run_ = std::move(run);
  }
  absl::Status RunOf(const Marks& marks, RunControl& control) {
    std::function<absl::Status(const Marks&, RunControl&)> run;
    {
      MutexLock lock(mu_);
      run = run_;
    }
    return run ? run(marks, control) : absl::OkStatus();
  }

  // Makes batches that start from now on wait for Open.
  void Close() {
    MutexLock lock(mu_);
    closed_ = true;
  }
  void Open() {
    MutexLock lock(mu_);
    closed_ = false;
    changed_.NotifyAll();
  }

  // Blocks until `count` batches have started since the engine did.
  void WaitForBatches(size_t count) {
    MutexLock lock(mu_);
    while (batches_.size() < count) changed_.Wait(mu_);
  }

  // All batches that were started, failed ones included.
  std::vector<Marks> batches() const {
    MutexLock lock(mu_);
    return batches_;
  }

  // The models of the encoder batches that were started. Only the addresses are valid: the models
  // may be gone.
  std::vector<const void*> encoders() const {
    MutexLock lock(mu_);
    return encoders_;
  }
  void Note(const encoder::Model& model) {
    MutexLock lock(mu_);
    encoders_.push_back(&model);
  }

  // Called by the device: records the batch, waits at the gate, and says whether it fails.
  absl::Status Begin(const Marks& marks) {
    std::function<absl::Status(const Marks&)> hook;
    {
      MutexLock lock(mu_);
      batches_.push_back(marks);
      changed_.NotifyAll();
      while (closed_) changed_.Wait(mu_);
      hook = hook_;
    }
    return hook ? hook(marks) : absl::OkStatus();
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::function<absl::Status(const Marks&)> hook_ ABSL_GUARDED_BY(mu_);
  std::function<absl::Status(const Marks&, RunControl&)> run_ ABSL_GUARDED_BY(mu_);
  std::vector<Marks> batches_ ABSL_GUARDED_BY(mu_);
  std::vector<const void*> encoders_ ABSL_GUARDED_BY(mu_);
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::shared_ptr<FakeScript> script) : script_(std::move(script)) {
    info_.name = "fake";
  }

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return pool_; }
  std::span<const attention::Variant> variants() const override {
    static constexpr attention::Variant kVariants[] = {
        {KernelName::kVanilla, "fake-vanilla",
         [](const attention::Spec& spec) {
           return spec.dtype == DType::kFloat32 && std::holds_alternative<Vanilla>(spec.kernel);
         },
         [](const attention::Spec&, std::span<const attention::Problem>, RunControl&) {
           return absl::OkStatus();
         },
         [](const attention::Spec&, std::span<const int32_t> cu_seqlens_q,
            std::span<const int32_t>) { return cu_seqlens_q.back() * workspace_per_token; }}};
    return kVariants;
  }
  // That attention says it takes; for all fake devices, since variants are.
  static inline std::atomic<int64_t> workspace_per_token = 0;
  // Rows of a request that begins with this id are NaN.
  static constexpr int64_t kNotANumber = 999;

  MemoryStats memory() const override { return {}; }
  bool healthy() const override { return script_->healthy; }
  int depth() const override { return script_->depth; }

  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource& source) override {
    if (source.directory == "missing") return MakeError(Reason::kInternal, "no such directory");
    return script_->make_model(source);
  }

  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl& control) override {
    FakeScript::Marks marks;
    for (const auto& problem : batch.requests) {
      marks.push_back(static_cast<int>(*reinterpret_cast<const float*>(problem.query)));
    }
    return Run(marks, control, [&batch] { Double(batch); });
  }

  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch& batch,
                                                    RunControl& control) override {
    FakeScript::Marks marks;
    for (const auto& item : batch.items) marks.push_back(static_cast<int>(item.ids.front()));
    script_->Note(*batch.model);
    return Run(marks, control, [&batch] { Sum(batch); });
  }

 private:
  class FakeExecution : public Execution {
   public:
    FakeExecution(std::shared_ptr<FakeScript> script, std::function<absl::Status()> work)
        : script_(std::move(script)), work_(std::move(work)) {}
    absl::StatusOr<ExecutionTimes> Wait() override {
      if (auto status = work_(); !status.ok()) return status;
      ExecutionTimes times;
      times.copy_in_us = 1;
      times.compute_us = script_->compute_us;
      times.copy_out_us = 3;
      times.backend = "fake-vanilla";
      return times;
    }

   private:
    const std::shared_ptr<FakeScript> script_;
    const std::function<absl::Status()> work_;
  };

  // A device of depth 1 computes in Launch, as the CPU does; others in Wait.
  absl::StatusOr<std::unique_ptr<Execution>> Run(const FakeScript::Marks& marks,
                                                 RunControl& control,
                                                 std::function<void()> compute) {
    if (script_->depth > 1) {
      if (auto status = script_->RunOf(marks, control); !status.ok()) return status;
      return std::make_unique<FakeExecution>(
          script_, [script = script_, marks, compute = std::move(compute)]() -> absl::Status {
            if (auto status = script->Begin(marks); !status.ok()) return status;
            compute();
            return absl::OkStatus();
          });
    }
    if (auto status = script_->Begin(marks); !status.ok()) return status;
    if (auto status = script_->RunOf(marks, control); !status.ok()) return status;
    compute();
    return std::make_unique<FakeExecution>(script_, [] { return absl::OkStatus(); });
  }

  static void Double(const AttentionBatch& batch) {
    for (const auto& problem : batch.requests) {
      const int64_t elements = problem.query_tokens() * problem.output_stride;
      const auto* query = reinterpret_cast<const float*>(problem.query);
      auto* output = reinterpret_cast<float*>(problem.output);
      for (int64_t i = 0; i < elements; ++i) output[i] = 2 * query[i];
    }
  }

  static void Sum(const encoder::Batch& batch) {
    for (const auto& item : batch.items) {
      // The rest of a wider row is zero, and so are further rows.
      std::fill_n(item.output, item.output_rows() * item.dimensions, 0.0F);
      for (int64_t s = 0; s < item.sequences(); ++s) {
        int64_t sum = 0;
        for (int32_t t = item.cu_seqlens[s]; t < item.cu_seqlens[s + 1]; ++t) sum += item.ids[t];
        const bool finite = item.ids.front() != kNotANumber;
        item.output[s * item.dimensions] =
            finite ? static_cast<float>(sum) : std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  const std::shared_ptr<FakeScript> script_;
  DeviceInfo info_;
  const std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), int64_t{64} << 20);
};

}  // namespace castor
