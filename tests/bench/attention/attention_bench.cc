// Vanilla attention on the CPU: our rows of the variant table against LibTorch's
// scaled_dot_product_attention, which a caller would otherwise use, measured in one run.
//
// Names end in heads/dim/tokens; "8:2" heads are 8 that share the keys and values of 2, "16x4096"
// tokens are 16 queries and 4096 keys, and "ragged" is a batch of short sequences, as encoders see
// them. "+lse" returns the log-sum-exp too. "causal/..." has the last queries of the keys, for
// which LibTorch takes a mask; "window256" sees 256 keys to the left. Compare ratios.
// --benchmark_filter selects, and OMP_NUM_THREADS sets the threads of both.

#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/variants.h"
#include "tests/bench/attention/batch.h"

namespace castor::attention {
namespace {

using bench::Batch;
using bench::Shape;

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
    for (size_t s = 0; s < batch.shape.queries.size(); ++s) {
      const auto queries = [&](const at::Tensor& packed) {
        return packed.narrow(0, batch.query_offsets[s], batch.shape.queries[s])
            .transpose(0, 1)
            .unsqueeze(0);
      };
      const auto keys = [&](const at::Tensor& packed) {
        return packed.narrow(0, batch.key_offsets[s], batch.shape.keys[s])
            .transpose(0, 1)
            .unsqueeze(0);
      };
      const auto mask = batch.mask.defined() ? std::optional(batch.mask) : std::nullopt;
      const at::Tensor out = at::scaled_dot_product_attention(
          queries(batch.query), keys(batch.key), keys(batch.value), mask,
          /*dropout_p=*/0, /*is_causal=*/false, /*scale=*/std::nullopt,
          /*enable_gqa=*/batch.spec.group() > 1);
      queries(batch.output).copy_(out);
    }
  }
  Report(state, batch);
}

void Register(const std::string& name, const std::shared_ptr<Batch>& batch, bool sdpa = true) {
  const auto add = [&](const std::string& what, auto run) {
    benchmark::RegisterBenchmark((what + "/" + name).c_str(), run)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  if (sdpa) add("sdpa", [batch](benchmark::State& state) { RunSdpa(state, *batch); });
  for (const Variant& row : CpuVariants()) {
    if (row.kernel != KernelName::kVanilla || !row.supports(batch->spec)) continue;
    for (const bool log_sum_exp : {false, true}) {
      add(std::string(row.backend) + (log_sum_exp ? "+lse" : ""),
          [=, &row](benchmark::State& state) { RunOurs(state, row, *batch, log_sum_exp); });
    }
  }
}

void Register(const std::string& name, DType dtype, const Shape& shape) {
  Register(name, std::make_shared<Batch>(dtype, shape));
}

// Masks, windows and biases that depend on positions.
void RegisterPositions() {
  for (const auto& [queries, keys] : {std::pair(1024, 4096), std::pair(64, 8192)}) {
    const Shape shape = {.queries = {queries}, .keys = {keys}};
    const auto batch = std::make_shared<Batch>(DType::kFloat32, shape);
    batch->spec.kernel = Vanilla{.causal = true};
    batch->mask = at::full({queries, keys}, -INFINITY).triu(keys - queries + 1);
    Register("causal/8/64/" + std::to_string(queries) + "x" + std::to_string(keys), batch);
  }
  for (const int32_t tokens : {4096, 16384}) {
    const Shape shape = {.queries = {tokens}, .keys = {tokens}};
    const auto batch = std::make_shared<Batch>(DType::kFloat32, shape);
    batch->spec.kernel = Vanilla{.causal = true};
    batch->spec.window.left = 256;
    Register("window256/8/64/" + std::to_string(tokens), batch, /*sdpa=*/false);
  }
}

void RegisterAll() {
  RegisterPositions();
  for (const auto& [dtype, type] :
       {std::pair(DType::kFloat32, "fp32"), std::pair(DType::kBFloat16, "bf16"),
        std::pair(DType::kFloat16, "fp16")}) {
    const std::string prefix = std::string(type) + "/";
    for (const int64_t dim : {32, 64, 128}) {
      for (const int32_t tokens : {64, 256, 1024, 4096}) {
        if (dtype != DType::kFloat32 && (dim != 64 || tokens == 4096)) continue;
        Register(prefix + "8/" + std::to_string(dim) + "/" + std::to_string(tokens), dtype,
                 {.dim = dim, .queries = {tokens}, .keys = {tokens}});
      }
    }
    for (const int64_t kv_heads : {1, 2, 8}) {
      for (const int32_t queries : {1, 16, 64, 4096}) {
        Register(
            prefix + "8:" + std::to_string(kv_heads) + "/64/" + std::to_string(queries) + "x4096",
            dtype, {.kv_heads = kv_heads, .queries = {queries}, .keys = {4096}});
      }
    }
    std::mt19937 random(7);
    std::vector<int32_t> lengths(32);
    for (int32_t& length : lengths) length = 10 + static_cast<int32_t>(random() % 81);  // mean 50
    for (const int64_t kv_heads : {2, 12}) {
      Register(prefix + "ragged/12" + (kv_heads < 12 ? ":2" : "") + "/32/50", dtype,
               {.heads = 12, .kv_heads = kv_heads, .dim = 32, .queries = lengths, .keys = lengths});
    }
  }
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  castor::attention::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
