// Approximate attention on the CPU: our rows of the variant table for clustered, improved clustered
// and CAST attention against LibTorch's scaled_dot_product_attention, measured in one run.
//
// One request of 8 heads of 64 dimensions in float32. Names are kernel/backend/inputs/tokens.
// Inputs are "gaussian", the worst case for clustering; or "centres", queries around 200 centres
// with a tenth of their variance.
// --benchmark_filter selects, and OMP_NUM_THREADS sets the threads of all.
// Memory is allocated as in the server: freed memory is reused.

#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <memory>
#include <string>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/attention/one_request.h"

namespace castor::attention {
namespace {

using bench::OneRequest;

void RunSdpa(benchmark::State& state, const OneRequest& request) {
  const c10::InferenceMode inference;
  for (auto _ : state) request.RunSdpa();
}

void RunOurs(benchmark::State& state, const Variant& variant, const Spec& spec,
             const OneRequest& request) {
  const c10::InferenceMode inference;
  for (auto _ : state) {
    const absl::Status status = variant.run(spec, {&request.problem, 1}, RunToEnd());
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  if (variant.workspace_bytes != nullptr) {
    const int64_t bytes =
        variant.workspace_bytes(spec, request.problem.cu_seqlens_q, request.problem.cu_seqlens_k);
    state.counters["workspace_MB"] = static_cast<double>(bytes) / 1e6;
  }
}

template <typename F>
void Add(const std::string& name, F run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  for (const int32_t tokens : {1024, 4096, 16384}) {
    std::string length = "/";
    length += std::to_string(tokens);
    for (const bool around_centres : {false, true}) {
      const auto request = std::make_shared<OneRequest>(
          around_centres ? bench::GroupedRows(tokens, 200, 1, std::sqrt(0.1))
                         : bench::GaussianRows(tokens));
      const std::string kind = around_centres ? "/centres" : "/gaussian";
      if (!around_centres) {
        Add("sdpa" + length, [request](benchmark::State& state) { RunSdpa(state, *request); });
      }
      for (const Kernel& kernel : bench::ApproximateKernels()) {
        const Spec spec = request->MakeSpec(kernel);
        for (const Variant& row : CpuVariants()) {
          if (row.kernel != NameOf(kernel) || !row.supports(spec)) continue;
          std::string name(NameOf(row.kernel));
          name.append("/").append(row.backend).append(kind).append(length);
          Add(name, [request, spec, &row](benchmark::State& state) {
            RunOurs(state, row, spec, *request);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  castor::server::SetEnvironment(argv, environ);
  castor::server::KeepFreedMemory();
  castor::attention::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
