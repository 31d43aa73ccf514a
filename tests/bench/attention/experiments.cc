// Makes one measurement of an attention kernel on the CPU per run and prints it as a line of JSON.
// experiments.py runs it many times and plots the results. Each measurement has its own process, so
// that peak memory is that kernel's.
//
//   experiments time   KERNEL TOKENS [BATCH]   least milliseconds and peak extra memory
//   experiments error  KERNEL TOKENS INPUTS    relative L2 error against exact attention
//
// KERNEL: vanilla, clustered-C, improved-C (top-k 32), cast-K (cluster size K, ceil(N/K) surrogate
// tokens). INPUTS: gaussian, the worst case for clustering, or centres: queries drawn around 64
// centres, as in trained models. fp32, 8 heads, head_dim 64; OMP_NUM_THREADS sets the threads.
// Memory is allocated as in the server.

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/command_line.h"

namespace castor::attention {
namespace {

using bench::Die;

constexpr int64_t kHeads = 8;
constexpr int64_t kHeadDim = 64;
constexpr int kCentres = 64;
constexpr float kSpread = 0.35f;  // of the queries around their centre

// "improved-100" -> "improved", 100.
int NumberOf(const std::string& kernel) {
  const size_t dash = kernel.find('-');
  return dash == std::string::npos ? 0 : std::atoi(kernel.c_str() + dash + 1);
}

Spec SpecOf(const std::string& kernel, int64_t tokens) {
  Spec spec;
  spec.heads = spec.kv_heads = kHeads;
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
  const int number = NumberOf(kernel);
  if (kernel == "vanilla") {
    spec.kernel = Vanilla{};
  } else if (kernel.starts_with("clustered-") && number > 0) {
    Clustered clustered;
    clustered.clusters = number;
    spec.kernel = clustered;
  } else if (kernel.starts_with("improved-") && number > 0) {
    ImprovedClustered improved;
    improved.clusters = number;
    spec.kernel = improved;
  } else if (kernel.starts_with("cast-") && number > 0) {
    Cast cast;
    cast.cluster_size = number;
    spec.kernel = cast;
    spec.surrogates = (tokens + number - 1) / number;
  } else {
    Die("no kernel is named " + kernel);
  }
  return spec;
}

// `batch` sequences of `tokens` tokens, and their memory.
struct Inputs {
  Inputs(const Spec& spec, int64_t tokens, int64_t batch, std::string_view kind)
      : query(Normal(batch * tokens * kHeads * kHeadDim)),
        key(Normal(query.size())),
        value(Normal(query.size())),
        output(query.size()),
        surrogates(Normal(spec.surrogates * kHeads * kHeadDim)),
        gate(Normal(batch * tokens)) {
    for (int64_t s = 0; s <= batch; ++s) offsets.push_back(static_cast<int32_t>(s * tokens));
    if (kind == "centres") {
      GatherAroundCentres();
    } else if (kind != "gaussian") {
      Die("inputs are gaussian or centres");
    }
    problem.query = Bytes(query);
    problem.key = Bytes(key);
    problem.value = Bytes(value);
    problem.output = reinterpret_cast<std::byte*>(output.data());
    problem.query_stride = problem.key_stride = problem.value_stride = problem.output_stride =
        kHeads * kHeadDim;
    problem.value_head_stride = kHeadDim;
    problem.cu_seqlens_q = problem.cu_seqlens_k = offsets;
    problem.cast.surrogates = Bytes(surrogates);
    problem.cast.gate = gate.data();
  }

  static const std::byte* Bytes(const std::vector<float>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }

  std::vector<float> Normal(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

  // Centres of twice the unit length make attention as peaked as in trained models.
  void GatherAroundCentres() {
    const std::vector<float> centres = Normal(kCentres * kHeads * kHeadDim);
    for (size_t row = 0; row < query.size() / kHeadDim; ++row) {
      const size_t centre = (random() % kCentres) * kHeads + row % kHeads;
      for (int64_t e = 0; e < kHeadDim; ++e) {
        float& element = query[row * kHeadDim + e];
        element = 2 * centres[centre * kHeadDim + e] + kSpread * element;
      }
    }
  }

  std::mt19937 random{20};
  std::vector<float> query, key, value, output, surrogates, gate;
  std::vector<int32_t> offsets;
  Problem problem;
};

void Run(const Spec& spec, const Problem& problem) {
  const Variant* variant = FindVariant(CpuVariants(), spec);
  if (variant == nullptr) Die("no row of the table runs this kernel");
  if (!variant->run(spec, {&problem, 1}, RunToEnd()).ok()) Die("the kernel failed");
}

// The value of "VmRSS:" or "VmHWM:" for this process, in bytes.
int64_t StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size()) * 1024;
  }
  return 0;
}

// The peak memory of one call beyond its tensors. Only the first call shows it: later ones reuse
// memory that the allocator kept.
int64_t PeakExtraBytes(const Spec& spec, const Problem& problem) {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the high-water mark
  const int64_t before = StatusBytes("VmRSS:");
  Run(spec, problem);
  return std::max<int64_t>(0, StatusBytes("VmHWM:") - before);
}

void Time(const std::string& kernel, int64_t tokens, int64_t batch) {
  using Clock = std::chrono::steady_clock;
  const Spec spec = SpecOf(kernel, tokens);
  const Inputs inputs(spec, tokens, batch, "gaussian");
  const int64_t peak = PeakExtraBytes(spec, inputs.problem);
  std::vector<double> times;
  double total = 0;
  while (times.size() < 3 || (total < 1500 && times.size() < 100)) {
    const Clock::time_point begin = Clock::now();
    Run(spec, inputs.problem);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    total += times.back();
    if (total > 20000) break;  // quadratic attention at 64K tokens: once is enough
  }
  std::printf(R"({"experiment":"time","kernel":"%s","tokens":%lld,"batch":%lld,"threads":%d,)"
              R"("ms":%.4f,"peak_extra_bytes":%lld})"
              "\n",
              kernel.c_str(), static_cast<long long>(tokens), static_cast<long long>(batch),
              at::get_num_threads(), *std::min_element(times.begin(), times.end()),
              static_cast<long long>(peak));
}

void Error(const std::string& kernel, int64_t tokens, const std::string& kind) {
  const Spec spec = SpecOf(kernel, tokens);
  Inputs inputs(spec, tokens, 1, kind);
  Run(spec, inputs.problem);
  const std::vector<float> approximate = inputs.output;
  Spec exact = spec;
  exact.kernel = Vanilla{};
  Run(exact, inputs.problem);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < approximate.size(); ++i) {
    const double difference = double{approximate[i]} - double{inputs.output[i]};
    error += difference * difference;
    norm += double{inputs.output[i]} * double{inputs.output[i]};
  }
  std::printf(
      R"({"experiment":"error","kernel":"%s","tokens":%lld,"inputs":"%s","relative_error":%.5f})"
      "\n",
      kernel.c_str(), static_cast<long long>(tokens), kind.c_str(), std::sqrt(error / norm));
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  castor::server::SetEnvironment(argv);
  castor::server::KeepFreedMemory();
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "time" && (argc == 4 || argc == 5)) {
    castor::attention::Time(argv[2], std::atoll(argv[3]), argc == 5 ? std::atoll(argv[4]) : 1);
  } else if (what == "error" && argc == 5) {
    castor::attention::Error(argv[2], std::atoll(argv[3]), argv[4]);
  } else {
    castor::bench::Die(
        "usage: experiments time KERNEL TOKENS [BATCH] | error KERNEL TOKENS INPUTS");
  }
}
