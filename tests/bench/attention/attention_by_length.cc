// Times attention of one length on the CPU and prints a line of JSON for each kernel: LibTorch's
// scaled_dot_product_attention, exact, clustered, improved clustered and CAST attention.
// tests/bench/plots/attention.py runs this for many lengths and draws the plot in README.
//
//   attention_by_length TOKENS INPUTS
//
// INPUTS: gaussian, the worst case for clustering; or groups, queries around 64 centres.
// `relative_error` is the L2 distance to exact attention, divided by the L2 norm of that.
// OMP_NUM_THREADS sets the threads of all. Memory is allocated as in the server.

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "engine/attention/variants.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/attention/one_request.h"
#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

// Centres of twice the standard deviation make attention as peaked as in trained models.
at::Tensor Queries(int64_t tokens, std::string_view inputs) {
  if (inputs == "gaussian") return GaussianRows(tokens);
  if (inputs == "groups") return GroupedRows(tokens, 64, 2, 0.35);
  Die("INPUTS is gaussian or groups");
}

void Run(const Kernel& kernel, const OneRequest& request) {
  const attention::Spec spec = request.MakeSpec(kernel);
  const attention::Variant* variant = attention::FindVariant(attention::CpuVariants(), spec);
  if (variant == nullptr) Die("no row of the variant table runs this kernel");
  if (!variant->run(spec, {&request.problem, 1}, RunToEnd()).ok()) Die("the kernel failed");
}

// The least milliseconds of several runs: other work on the machine can only add time.
template <typename F>
double LeastMs(F run) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int runs = 0; runs < 100 && (runs < 3 || total < 1'000) && total < 20'000; ++runs) {
    const Clock::time_point begin = Clock::now();
    run();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    least = std::min(least, ms);
    total += ms;
  }
  return least;
}

void Measure(int64_t tokens, std::string_view inputs) {
  at::manual_seed(20);
  const c10::InferenceMode inference;
  const OneRequest request(Queries(tokens, inputs));
  at::Tensor exact;
  const auto measure = [&](std::string_view name, auto run) {
    const double ms = LeastMs(run);
    if (!exact.defined()) exact = request.output.clone();
    const double error =
        request.output.sub(exact).norm().item<double>() / exact.norm().item<double>();
    std::printf(R"({"kernel":"%s","tokens":%lld,"inputs":"%s","ms":%.4f,"relative_error":%.6f})"
                "\n",
                std::string(name).c_str(), static_cast<long long>(tokens),
                std::string(inputs).c_str(), ms, error);
    std::fflush(stdout);
  };
  measure("vanilla", [&] { Run(Vanilla{}, request); });
  measure("sdpa", [&] { request.RunSdpa(); });
  for (const Kernel& kernel : ApproximateKernels()) {
    measure(NameOf(NameOf(kernel)), [&] { Run(kernel, request); });
  }
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  castor::server::SetEnvironment(argv, environ);
  castor::server::KeepFreedMemory();
  const int64_t tokens = argc == 3 ? std::atoll(argv[1]) : 0;
  if (tokens < 1) castor::bench::Die("usage: attention_by_length TOKENS gaussian|groups");
  castor::bench::Measure(tokens, argv[2]);
}
