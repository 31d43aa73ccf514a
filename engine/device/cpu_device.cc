#include "engine/device/cpu_device.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <new>
#include <string_view>
#include <utility>

#include "engine/attention/parallel.h"
#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "engine/encoder/directory/load.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/kernels/cpu/cpu_features.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

double MicrosecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - start).count();
}

// Turns exceptions on the CPU into Status: everything in the tensor library runs inside it. `body`
// returns an absl::Status.
template <typename Body>
absl::Status Guard(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return MakeError(Reason::kOutOfMemory, "the host has no memory for this batch");
  } catch (const c10::Error& error) {
    const std::string_view message = error.what_without_backtrace();
    // Its CPU allocator has no error type of its own.
    const bool allocation = message.find("DefaultCPUAllocator") != std::string_view::npos;
    return MakeError(allocation ? Reason::kOutOfMemory : Reason::kInternal, message);
  } catch (const std::exception& error) {
    return MakeError(Reason::kInternal, error.what());
  }
}

class FinishedExecution : public Execution {
 public:
  explicit FinishedExecution(const ExecutionTimes& times) : times_(times) {}
  absl::StatusOr<ExecutionTimes> Wait() override { return times_; }

 private:
  const ExecutionTimes times_;
};

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

std::unique_ptr<Device> CpuDevice::Open(const EngineOptions& options, const std::string& note) {
  const int threads = options.cpu_threads > 0 ? options.cpu_threads : AvailableProcessors();
  attention::SetParallelWorkers(threads);
  attention::StartWorkers();
  // The tensor library's team would only take the cores of our own kernels, which do the work.
  at::set_num_threads(kernels::HasAvx2() ? 1 : threads);
  DeviceInfo info;
  info.name = "cpu";
  info.description = ProcessorName();
  info.memory_bytes = MemoryLimitBytes();
  info.threads = threads;
  info.backend = "LibTorch " TORCH_VERSION ", " + at::get_cpu_capability();
  if (!note.empty()) info.backend += " (" + note + ")";
  return std::unique_ptr<Device>(
      new CpuDevice(std::move(info), MakeHostPool(SystemMemory(), options.max_cached_host_bytes)));
}

thread_local CpuDevice::LaunchStats CpuDevice::stats_;

std::span<const attention::Variant> CpuDevice::variants() const { return attention::CpuVariants(); }

MemoryStats CpuDevice::memory() const {
  MemoryStats memory;
  memory.device_allocated_bytes = weights_->now.load();
  memory.device_reserved_bytes = memory.device_allocated_bytes;
  memory.device_peak_bytes = weights_->peak.load();
  return memory;
}

absl::StatusOr<std::shared_ptr<encoder::Model>> CpuDevice::LoadModel(const ModelSource& source) {
  std::shared_ptr<encoder::Model> model;
  const absl::Status status = Guard([&]() -> absl::Status {
    const c10::InferenceMode inference;
    auto loaded =
        encoder::LoadModel(source, at::Device(at::kCPU),
                           [this](const attention::Spec& spec, const attention::Problem& problem,
                                  RunControl& control) {
                             return RunAttention(spec, {&problem, 1}, control);
                           });
    if (!loaded.ok()) return loaded.status();
    absl::Status served =
        encoder::CheckServed((*loaded)->attention(Vanilla{}), source.name, variants());
    if (!served.ok()) return served;
    model = *std::move(loaded);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;

  // The last copy of this handle subtracts the weights again.
  const int64_t bytes = model->info().weight_bytes;
  weights_->peak = std::max<int64_t>(weights_->peak, weights_->now += bytes);
  encoder::Model* const raw = model.get();
  return std::shared_ptr<encoder::Model>(
      raw, [kept = std::move(model), weights = weights_, bytes](encoder::Model*) mutable {
        kept.reset();
        weights->now -= bytes;
      });
}

absl::Status CpuDevice::RunAttention(const attention::Spec& spec,
                                     std::span<const attention::Problem> problems,
                                     RunControl& control) {
  const attention::Variant* variant = attention::FindVariant(variants(), spec);
  if (variant == nullptr) {
    return MakeError(Reason::kKernelNotAvailable, "no kernel on the CPU runs this attention");
  }
  stats_.backend = variant->backend;
  if (variant->workspace_bytes != nullptr) {
    for (const attention::Problem& problem : problems) {
      stats_.workspace_bytes =
          std::max(stats_.workspace_bytes,
                   variant->workspace_bytes(spec, problem.cu_seqlens_q, problem.cu_seqlens_k));
    }
  }
  return variant->run(spec, problems, control);
}

template <typename Body>
absl::StatusOr<std::unique_ptr<Execution>> CpuDevice::RunLaunch(const RunControl& control,
                                                                Body&& compute) {
  // This launch may have begun at a checkpoint of another, which continues afterwards.
  const LaunchStats outer = std::exchange(stats_, {});
  const steady_clock::time_point start = steady_clock::now();
  const absl::Status status = Guard([&] {
    const c10::InferenceMode inference;
    return compute();
  });
  const LaunchStats stats = std::exchange(stats_, outer);
  if (!status.ok()) return status;
  ExecutionTimes times;
  times.compute_us = MicrosecondsSince(start + control.paused());
  times.workspace_bytes = stats.workspace_bytes;
  times.backend = stats.backend;
  return std::make_unique<FinishedExecution>(times);
}

absl::StatusOr<std::unique_ptr<Execution>> CpuDevice::Launch(const AttentionBatch& batch,
                                                             RunControl& control) {
  return RunLaunch(control, [&] { return RunAttention(batch.spec, batch.requests, control); });
}

absl::StatusOr<std::unique_ptr<Execution>> CpuDevice::Launch(const encoder::Batch& batch,
                                                             RunControl& control) {
  return RunLaunch(control, [&] { return encoder::RunOnHost(batch, control); });
}

}  // namespace castor
