#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/bench/serving/workload.h"
#include "tests/gpu/checks.h"

namespace castor::gpu {
namespace {

constexpr int64_t kVanillaHeads = 8;
constexpr int64_t kVanillaDim = 64;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int Repeats(int64_t tokens) { return tokens <= 8192 ? 50 : 15; }

}  // namespace

// GPU microseconds of one call through LibTorch's own dispatch. A memset runs first, so that the
// call is already queued when the first event passes. That leaves out the host's part, as for the
// engine's compute stage, which waits for its inputs.
double TimeBareCall(int64_t tokens) {
  const c10::InferenceMode inference;
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA, 0);
  const at::Tensor query = at::randn({1, kVanillaHeads, tokens, kVanillaDim}, options);
  const at::Tensor key = at::randn({1, kVanillaHeads, tokens, kVanillaDim}, options);
  const at::Tensor value = at::randn({1, kVanillaHeads, tokens, kVanillaDim}, options);
  at::Tensor delay = at::empty({int64_t{1} << 30}, options.dtype(at::kByte));
  std::vector<double> times;
  for (int i = 0; i < Repeats(tokens) + 5; ++i) {
    delay.zero_();
    c10::cuda::CUDAEvent begin(cudaEventDefault);
    c10::cuda::CUDAEvent end(cudaEventDefault);
    begin.record();
    at::scaled_dot_product_attention(query, key, value);
    end.record();
    end.synchronize();
    if (i >= 5) times.push_back(begin.elapsed_time(end) * 1e3);
  }
  return Median(std::move(times));
}

EngineTimes TimeEngine(Engine& engine, int64_t tokens, const Kernel& kernel) {
  const bench::AttentionProblem problem(tokens, kVanillaHeads, kVanillaDim, DType::kBFloat16, 1);
  std::vector<double> compute, copy_in, copy_out, total;
  EngineTimes times;
  for (int i = 0; i < Repeats(tokens) + 5; ++i) {
    std::promise<absl::StatusOr<AttentionResult>> promise;
    const TimePoint start = std::chrono::steady_clock::now();
    AttentionRequest request = problem.Request();
    request.kernel = kernel;
    const auto ticket = engine.Submit(
        std::move(request), AttentionCompletion([&](absl::StatusOr<AttentionResult> result) {
          promise.set_value(std::move(result));
        }));
    if (!ticket.ok()) return times;
    const absl::StatusOr<AttentionResult> result = promise.get_future().get();
    const TimePoint end = std::chrono::steady_clock::now();
    if (!result.ok()) return times;
    if (i < 5) continue;
    const ExecutionReport& report = result->report;
    compute.push_back(report.timing.compute_us);
    copy_in.push_back(report.timing.copy_in_us);
    copy_out.push_back(report.timing.copy_out_us);
    total.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    times.backend = report.kernel.backend;
  }
  times.compute_us = Median(std::move(compute));
  times.copy_in_us = Median(std::move(copy_in));
  times.copy_out_us = Median(std::move(copy_out));
  times.total_us = Median(std::move(total));
  return times;
}

void TimeAttention(const std::string& device, Report& report) {
  report.Section("exact attention, bf16, H=8, d=64, one request: microseconds, medians");
  EngineOptions options;
  options.device = device;
  absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(options);
  if (!report.Check(engine.ok(), "an engine on " + device)) return;
  std::printf("%8s %10s %8s %10s %8s %8s %9s %9s %10s  %s\n", "tokens", "bare SDPA", "TFLOP/s",
              "engine", "TFLOP/s", "ratio", "copy in", "copy out", "in all", "backend");
  for (int64_t tokens = 1024; tokens <= 65536; tokens *= 2) {
    const double bare = TimeBareCall(tokens);
    const EngineTimes times = TimeEngine(**engine, tokens, Vanilla{});
    if (times.compute_us == 0) {
      report.Check(false, std::to_string(tokens) + " tokens through the engine");
      continue;
    }
    const double flop = 4.0 * kVanillaHeads * kVanillaDim * static_cast<double>(tokens) * tokens;
    std::printf("%8lld %10.1f %8.0f %10.1f %8.0f %8.3f %9.1f %9.1f %10.1f  %s\n",
                static_cast<long long>(tokens), bare, flop / bare / 1e6, times.compute_us,
                flop / times.compute_us / 1e6, bare / times.compute_us, times.copy_in_us,
                times.copy_out_us, times.total_us, times.backend.c_str());
    std::fflush(stdout);
  }
}

}  // namespace castor::gpu
