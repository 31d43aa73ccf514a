// Approximate attention on the CPU: our rows of the variant table for clustered, improved clustered
// and CAST attention against LibTorch's scaled_dot_product_attention, measured in one run:
// report_approximate.py makes the ratios.
//
// One request of 8 heads of 64 dimensions in float32. Names are kernel/backend/inputs/tokens.
// Inputs are "gaussian", independent normal queries, the worst case for clustering; or "centres",
// queries around 200 centres with a tenth of their variance, as in trained models.
// --benchmark_filter selects, and OMP_NUM_THREADS sets the threads of all.
// Memory is allocated as in the server: freed memory is reused.

#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "server/lifecycle/environment.h"

namespace castor::attention {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 64;
constexpr int32_t kClusterSize = 256;  // of CAST

std::byte* Bytes(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

at::Tensor AroundCentres(int32_t tokens) {
  const at::Tensor centres = at::randn({200, kHeads, kDim}, at::kFloat);
  const at::Tensor chosen = centres.index_select(0, at::randint(200, {tokens}, at::kLong));
  return at::randn({tokens, kHeads, kDim}, at::kFloat).mul_(std::sqrt(0.1)).add_(chosen);
}

// One request and its tensors, [tokens, heads, dim].
struct Inputs {
  Inputs(int32_t tokens, bool around_centres)
      : offsets{0, tokens},
        query(around_centres ? AroundCentres(tokens)
                             : at::randn({tokens, kHeads, kDim}, at::kFloat)),
        key(at::randn({tokens, kHeads, kDim}, at::kFloat)),
        value(at::randn({tokens, kHeads, kDim}, at::kFloat)),
        output(at::empty_like(query)),
        surrogates(at::randn({surrogate_count(), kHeads, kDim}, at::kFloat)),
        gate(at::randn({tokens}, at::kFloat)) {
    problem.query = Bytes(query);
    problem.key = Bytes(key);
    problem.value = Bytes(value);
    problem.output = Bytes(output);
    problem.query_stride = problem.key_stride = kHeads * kDim;
    problem.value_stride = problem.output_stride = kHeads * kDim;
    problem.value_head_stride = kDim;
    problem.cu_seqlens_q = problem.cu_seqlens_k = offsets;
    problem.cast.surrogates = Bytes(surrogates);
    problem.cast.gate = gate.const_data_ptr<float>();
  }

  int64_t surrogate_count() const { return (offsets[1] + kClusterSize - 1) / kClusterSize; }

  Spec MakeSpec(Kernel kernel) const {
    Spec spec;
    spec.heads = spec.kv_heads = kHeads;
    spec.head_dim = spec.value_dim = kDim;
    spec.softmax_scale = 1 / std::sqrt(static_cast<double>(kDim));
    spec.surrogates = std::holds_alternative<Cast>(kernel) ? surrogate_count() : 0;
    spec.kernel = std::move(kernel);
    return spec;
  }

  std::vector<int32_t> offsets;
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor output;
  at::Tensor surrogates;
  at::Tensor gate;
  Problem problem;
};

void RunSdpa(benchmark::State& state, const Inputs& inputs) {
  const c10::InferenceMode inference;
  const auto heads_first = [](const at::Tensor& packed) {
    return packed.transpose(0, 1).unsqueeze(0);
  };
  for (auto _ : state) {
    const at::Tensor out = at::scaled_dot_product_attention(
        heads_first(inputs.query), heads_first(inputs.key), heads_first(inputs.value));
    heads_first(inputs.output).copy_(out);
  }
}

void RunOurs(benchmark::State& state, const Variant& variant, const Spec& spec,
             const Inputs& inputs) {
  const c10::InferenceMode inference;
  for (auto _ : state) {
    const absl::Status status = variant.run(spec, {&inputs.problem, 1}, RunToEnd());
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  if (variant.workspace_bytes != nullptr) {
    const int64_t bytes =
        variant.workspace_bytes(spec, inputs.problem.cu_seqlens_q, inputs.problem.cu_seqlens_k);
    state.counters["workspace_MB"] = static_cast<double>(bytes) / 1e6;
  }
}

template <typename F>
void Add(const std::string& name, F run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  Clustered clustered;
  ImprovedClustered improved;
  Cast cast;
  cast.cluster_size = kClusterSize;
  for (const int32_t tokens : {1024, 4096, 16384}) {
    std::string length = "/";
    length += std::to_string(tokens);
    for (const bool around_centres : {false, true}) {
      const auto inputs = std::make_shared<Inputs>(tokens, around_centres);
      const std::string kind = around_centres ? "/centres" : "/gaussian";
      if (!around_centres) {
        Add("sdpa" + length, [inputs](benchmark::State& state) { RunSdpa(state, *inputs); });
      }
      for (const Kernel& kernel : {Kernel(clustered), Kernel(improved), Kernel(cast)}) {
        const Spec spec = inputs->MakeSpec(kernel);
        for (const Variant& row : CpuVariants()) {
          if (row.kernel != NameOf(kernel) || !row.supports(spec)) continue;
          std::string name(NameOf(row.kernel));
          name.append("/").append(row.backend).append(kind).append(length);
          Add(name, [inputs, spec, &row](benchmark::State& state) {
            RunOurs(state, row, spec, *inputs);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  castor::server::SetEnvironment(argv);
  castor::server::KeepFreedMemory();
  castor::attention::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
