// Vanilla attention on the CPU: our rows of the variant table against LibTorch's
// scaled_dot_product_attention, which a caller would otherwise use, measured in one run.
//
// Names end in heads/dim/tokens; "ragged" is a batch of short sequences, as encoders see them.
// "+lse" returns the log-sum-exp too. Compare ratios. --benchmark_filter selects, and
// OMP_NUM_THREADS sets the threads of both.

#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"

namespace castor::attention {
namespace {

// One request of several sequences and its tensors, [tokens, heads, dim].
struct Batch {
  Batch(DType dtype, int64_t heads, int64_t dim, const std::vector<int32_t>& lengths)
      : lengths(lengths) {
    offsets = {0};
    for (int32_t length : lengths) offsets.push_back(offsets.back() + length);
    const at::ScalarType type = dtype == DType::kFloat32   ? at::kFloat
                                : dtype == DType::kFloat16 ? at::kHalf
                                                           : at::kBFloat16;
    query = at::randn({offsets.back(), heads, dim}, at::kFloat).to(type);
    key = at::randn({offsets.back(), heads, dim}, at::kFloat).to(type);
    value = at::randn({offsets.back(), heads, dim}, at::kFloat).to(type);
    output = at::empty_like(query);

    spec.dtype = dtype;
    spec.heads = heads;
    spec.head_dim = spec.value_dim = dim;
    spec.softmax_scale = 1 / std::sqrt(static_cast<double>(dim));
    const auto bytes = [](const at::Tensor& tensor) {
      return static_cast<std::byte*>(tensor.data_ptr());
    };
    problem = {bytes(query), bytes(key),  bytes(value), bytes(output), heads * dim, heads * dim,
               heads * dim,  heads * dim, nullptr,      offsets,       offsets,     {}};
    log_sum_exp.resize(offsets.back() * heads);
  }

  double flops() const {
    double total = 0;
    for (double length : lengths) total += 4 * length * length * spec.heads * spec.head_dim;
    return total;
  }

  std::vector<int32_t> lengths;
  std::vector<int32_t> offsets;
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor output;
  std::vector<float> log_sum_exp;
  Spec spec;
  Problem problem;
};

void Report(benchmark::State& state, const Batch& batch) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(batch.flops() / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

void RunOurs(benchmark::State& state, const Variant& variant, Batch& batch, bool log_sum_exp) {
  const c10::InferenceMode inference;
  Spec spec = batch.spec;
  Problem problem = batch.problem;
  spec.log_sum_exp = log_sum_exp;
  if (log_sum_exp) problem.log_sum_exp = batch.log_sum_exp.data();
  for (auto _ : state) {
    const absl::Status status = variant.run(spec, {&problem, 1}, RunToEnd());
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  Report(state, batch);
}

void RunSdpa(benchmark::State& state, const Batch& batch) {
  const c10::InferenceMode inference;
  for (auto _ : state) {
    for (size_t s = 0; s < batch.lengths.size(); ++s) {
      const auto sequence = [&](const at::Tensor& packed) {
        return packed.narrow(0, batch.offsets[s], batch.lengths[s]).transpose(0, 1).unsqueeze(0);
      };
      const at::Tensor out = at::scaled_dot_product_attention(
          sequence(batch.query), sequence(batch.key), sequence(batch.value));
      sequence(batch.output).copy_(out);
    }
  }
  Report(state, batch);
}

void Register(const std::string& name, DType dtype, int64_t heads, int64_t dim,
              const std::vector<int32_t>& lengths) {
  const auto batch = std::make_shared<Batch>(dtype, heads, dim, lengths);
  const auto add = [&](const std::string& what, auto run) {
    benchmark::RegisterBenchmark((what + "/" + name).c_str(), run)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("sdpa", [batch](benchmark::State& state) { RunSdpa(state, *batch); });
  for (const Variant& row : CpuVariants()) {
    if (row.kernel != KernelName::kVanilla || !row.supports(batch->spec)) continue;
    for (const bool log_sum_exp : {false, true}) {
      add(std::string(row.backend) + (log_sum_exp ? "+lse" : ""),
          [=, &row](benchmark::State& state) { RunOurs(state, row, *batch, log_sum_exp); });
    }
  }
}

void RegisterAll() {
  for (const auto& [dtype, type] :
       {std::pair(DType::kFloat32, "fp32"), std::pair(DType::kBFloat16, "bf16"),
        std::pair(DType::kFloat16, "fp16")}) {
    const std::string prefix = std::string(type) + "/";
    for (const int64_t dim : {32, 64, 128}) {
      for (const int32_t tokens : {64, 256, 1024, 4096}) {
        if (dtype != DType::kFloat32 && (dim != 64 || tokens == 4096)) continue;
        Register(prefix + "8/" + std::to_string(dim) + "/" + std::to_string(tokens), dtype, 8, dim,
                 {tokens});
      }
    }
    std::mt19937 random(7);
    std::vector<int32_t> lengths(32);
    for (int32_t& length : lengths) length = 10 + static_cast<int32_t>(random() % 81);  // mean 50
    Register(prefix + "ragged/12/32/50", dtype, 12, 32, lengths);
  }
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  castor::attention::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
