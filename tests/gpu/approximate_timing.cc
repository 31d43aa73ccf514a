// The table of the approximate kernels: measurements of one request of 8 heads of 64 in bf16, and
// the project's goals for an H200.

#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/checks.h"
#include "tests/support/attention/elements.h"

namespace castor::gpu {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 64;
constexpr int64_t kClusterSize = 256;
constexpr size_t kSizes = 5;
constexpr std::array<int64_t, kSizes> kTokens = {4096, 8192, 16384, 32768, 65536};

struct Subject {
  const char* name;
  std::array<double, kSizes> goals;  // speedups over the bare call
  Kernel (*kernel)(int64_t tokens);
};

// Random surrogates and gates, kept until the program ends: requests only view them.
Kernel MakeCast(int64_t tokens) {
  static std::vector<std::vector<std::byte>> kept;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const int64_t clusters = tokens / kClusterSize;
  std::vector<std::byte>& surrogates = kept.emplace_back(clusters * kHeads * kDim * 2);
  for (int64_t i = 0; i < clusters * kHeads * kDim; ++i) {
    attention::SetElement(surrogates.data(), DType::kBFloat16, i, normal(random));
  }
  Cast cast;
  cast.surrogates = TensorInput{DType::kBFloat16, {clusters, kHeads, kDim}, {surrogates}};
  std::vector<std::byte>& gate = kept.emplace_back(tokens * sizeof(float));
  for (int64_t i = 0; i < tokens; ++i) {
    attention::SetElement(gate.data(), DType::kFloat32, i, normal(random));
  }
  cast.gate = TensorInput{DType::kFloat32, {tokens}, {gate}};
  cast.cluster_size = static_cast<int32_t>(kClusterSize);
  return cast;
}

const std::array<Subject, 3> kSubjects = {{
    {"clustered C=100", {2.0, 5.2, 12, 27, 55}, [](int64_t) -> Kernel { return Clustered{}; }},
    {"improved C=100 k=32",
     {1.6, 4.4, 10.5, 24, 50},
     [](int64_t) -> Kernel { return ImprovedClustered{}; }},
    {"CAST kappa=256", {2.0, 5.1, 12, 25, 45}, MakeCast},
}};

int64_t Allocated(bool peak) {
  const auto stats = allocator::getDeviceStats(0).allocated_bytes[0];
  return peak ? stats.peak : stats.current;
}

// The peak bytes allocated while `run` runs, beyond those allocated before.
template <typename Run>
int64_t PeakOf(Run run) {
  cudaDeviceSynchronize();
  allocator::resetPeakStats(0);
  const int64_t before = Allocated(/*peak=*/false);
  run();
  cudaDeviceSynchronize();
  return Allocated(/*peak=*/true) - before;
}

// The peak of unfused attention, which holds the scores and the weights in full.
int64_t UnfusedPeak(int64_t tokens) {
  const c10::InferenceMode inference;
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA, 0);
  const at::Tensor query = at::randn({kHeads, tokens, kDim}, options);
  const at::Tensor key = at::randn({kHeads, kDim, tokens}, options);
  const at::Tensor value = at::randn({kHeads, tokens, kDim}, options);
  return PeakOf([&] { at::matmul(at::softmax(at::matmul(query, key), -1), value); });
}

// The slope of log time over log tokens, by least squares.
double FitExponent(const std::array<double, kSizes>& times) {
  double x_mean = 0;
  double y_mean = 0;
  for (size_t i = 0; i < kSizes; ++i) {
    x_mean += std::log(static_cast<double>(kTokens[i])) / kSizes;
    y_mean += std::log(times[i]) / kSizes;
  }
  double covariance = 0;
  double variance = 0;
  for (size_t i = 0; i < kSizes; ++i) {
    const double x = std::log(static_cast<double>(kTokens[i])) - x_mean;
    covariance += x * (std::log(times[i]) - y_mean);
    variance += x * x;
  }
  return covariance / variance;
}

}  // namespace

void TimeApproximate(const std::string& device, Report& report) {
  report.Section("approximate attention, bf16, H=8, d=64, one request: times as fast as bare SDPA");
  EngineOptions options;
  options.device = device;
  absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(options);
  if (!report.Check(engine.ok(), "an engine on " + device)) return;

  std::array<double, kSizes> bare;
  std::printf("%-22s", "tokens");
  for (size_t i = 0; i < kSizes; ++i) {
    bare[i] = TimeBareCall(kTokens[i]);
    std::printf(" %17lld", static_cast<long long>(kTokens[i]));
  }
  std::printf("\n%-22s", "bare SDPA, us");
  for (const double us : bare) std::printf(" %17.1f", us);
  std::printf("\n%-22s", "vanilla, ratio (>0.98)");
  for (size_t i = 0; i < kSizes; ++i) {
    const EngineTimes times = TimeEngine(**engine, kTokens[i], Vanilla{});
    std::printf(" %17.3f", times.compute_us == 0 ? 0.0 : bare[i] / times.compute_us);
  }
  std::printf("\n");
  // Each cell: ratio (goal) microseconds.
  for (const Subject& subject : kSubjects) {
    std::array<double, kSizes> us = {};
    bool all = true;
    std::string backend;
    std::printf("%-22s", subject.name);
    for (size_t i = 0; i < kSizes; ++i) {
      const EngineTimes times = TimeEngine(**engine, kTokens[i], subject.kernel(kTokens[i]));
      us[i] = times.compute_us;
      all = all && us[i] > 0;
      if (us[i] > 0) backend = times.backend;
      if (us[i] > 0) {
        std::printf(" %5.1f (%4.1f) %4.0fu", bare[i] / us[i], subject.goals[i], us[i]);
      } else {
        std::printf(" %17s", "did not run");
      }
      std::fflush(stdout);
    }
    std::printf("  %s\n", backend.c_str());
    if (!all) continue;
    std::string missed;
    for (size_t i = 0; i < kSizes; ++i) {
      if (bare[i] / us[i] >= subject.goals[i]) continue;
      missed += ' ';
      missed += std::to_string(kTokens[i]);
    }
    report.Note("grows as tokens^" + std::to_string(FitExponent(us)).substr(0, 4) +
                (missed.empty() ? "; every goal is met" : "; below the goal at" + missed));
  }

  report.Section("peak device memory above queries, keys, values and rows, MiB");
  const int64_t unfused = UnfusedPeak(4096);
  std::printf("%-22s %10s %10s\n", "", "4096", "65536");
  std::printf("%-22s %10.1f\n", "unfused attention", static_cast<double>(unfused) / (1 << 20));
  for (const Subject& subject : kSubjects) {
    std::printf("%-22s", subject.name);
    for (const int64_t tokens : {int64_t{4096}, int64_t{65536}}) {
      const Kernel kernel = subject.kernel(tokens);
      TimeEngine(**engine, tokens, kernel);  // allocates what is kept from call to call
      bool ran = false;
      const int64_t peak =
          PeakOf([&] { ran = TimeEngine(**engine, tokens, kernel).compute_us > 0; });
      const int64_t tensors = 4 * tokens * kHeads * kDim * 2;
      const double extra = static_cast<double>(peak - tensors) / (1 << 20);
      std::printf(" %10s", ran ? std::to_string(extra).substr(0, 8).c_str() : "-");
      if (ran && tokens == 4096 && subject.kernel == MakeCast) {
        std::printf(" (%.1f%% of unfused, goal 10%%)",
                    100.0 * static_cast<double>(peak - tensors) / static_cast<double>(unfused));
      }
    }
    std::printf("\n");
  }
}

}  // namespace castor::gpu
