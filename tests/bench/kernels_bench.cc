// Times of clustered kernels on the CPU beside each other and exact attention: a table in Markdown.
//
//   kernels_bench [--tokens=2048] [--batch=1] [--heads=8] [--dim=64] [--rounds=9]
//   [--inputs=centres]
//                 KERNEL...
//
// One request of `batch` sequences in float32; KERNEL as kernel_notation.h has them. Inputs:
// gaussian, or centres, queries around 64 centres as in trained models. Every round runs each
// kernel once, so that a machine that others use slows all of them; a ratio is the median of its
// rounds', to the first kernel and to exact attention. OMP_NUM_THREADS sets the threads.
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "server/allocator.h"
#include "server/environment.h"
#include "tests/bench/command_line.h"
#include "tests/bench/kernel_notation.h"
#include "tests/bench/median.h"

namespace castor::bench {
namespace {

using attention::Problem;
using attention::Spec;

struct Shape {
  int64_t tokens;
  int64_t batch;
  int64_t heads;
  int64_t dim;
  bool centres;
};

// A request's tensors, [tokens, heads, dim].
class Tensors {
 public:
  explicit Tensors(const Shape& shape) {
    const int64_t size = shape.batch * shape.tokens * shape.heads * shape.dim;
    const auto normal = [&](float factor, int64_t count) {
      std::normal_distribution<float> distribution(0, factor);
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = distribution(random_);
      return values;
    };
    query_ = normal(shape.centres ? 0.35f : 1, size);
    key_ = normal(1, size);
    value_ = normal(1, size);
    output_.resize(static_cast<size_t>(size));
    if (shape.centres) {
      constexpr int64_t kCentres = 64;
      const std::vector<float> centres = normal(2, kCentres * shape.heads * shape.dim);
      for (int64_t row = 0; row < size / shape.dim; ++row) {
        const auto chosen = static_cast<int64_t>(random_() % kCentres);
        const int64_t centre = chosen * shape.heads + row % shape.heads;
        for (int64_t e = 0; e < shape.dim; ++e) {
          query_[row * shape.dim + e] += centres[centre * shape.dim + e];
        }
      }
    }
    for (int64_t s = 0; s <= shape.batch; ++s) {
      offsets_.push_back(static_cast<int32_t>(s * shape.tokens));
    }
    problem_.query = reinterpret_cast<const std::byte*>(query_.data());
    problem_.key = reinterpret_cast<const std::byte*>(key_.data());
    problem_.value = reinterpret_cast<const std::byte*>(value_.data());
    problem_.output = reinterpret_cast<std::byte*>(output_.data());
    problem_.query_stride = problem_.key_stride = shape.heads * shape.dim;
    problem_.value_stride = problem_.output_stride = shape.heads * shape.dim;
    problem_.cu_seqlens_q = problem_.cu_seqlens_k = offsets_;
  }

  const Problem& problem() const { return problem_; }

 private:
  std::mt19937 random_{20};
  std::vector<float> query_, key_, value_, output_;
  std::vector<int32_t> offsets_;
  Problem problem_;
};

double Milliseconds(const Spec& spec, const Problem& problem) {
  const attention::Variant* variant = FindVariant(attention::CpuVariants(), spec);
  if (variant == nullptr) Die("no row of the table runs this kernel");
  const auto start = std::chrono::steady_clock::now();
  if (!variant->run(spec, {&problem, 1}, RunToEnd()).ok()) Die("the kernel failed");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

int Main(int argc, char** argv) {
  const auto number = [&](const std::string& flag, const std::string& otherwise) {
    return WholeNumber(TakeFlag(flag, &argc, argv, otherwise), "--" + flag);
  };
  Shape shape{};
  shape.tokens = number("tokens", "2048");
  shape.batch = number("batch", "1");
  shape.heads = number("heads", "8");
  shape.dim = number("dim", "64");
  const int rounds = number("rounds", "9");
  const std::string inputs = TakeFlag("inputs", &argc, argv, "centres");
  if (inputs != "centres" && inputs != "gaussian") Die("inputs are gaussian or centres");
  shape.centres = inputs == "centres";
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) Die("no kernels; see tests/bench/kernels_bench.cc");
  std::vector<Spec> specs;
  for (const std::string& name : names) {
    Spec spec;
    spec.heads = shape.heads;
    spec.head_dim = spec.value_dim = shape.dim;
    spec.softmax_scale = 1 / std::sqrt(static_cast<double>(shape.dim));
    spec.kernel = KernelNoted(name);
    specs.push_back(std::move(spec));
  }
  names.emplace_back("exact");
  specs.push_back(specs.front());
  specs.back().kernel = Vanilla{};

  const Tensors tensors(shape);
  std::vector<std::vector<double>> times(specs.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t k = 0; k < specs.size(); ++k) {
      const double time = Milliseconds(specs[k], tensors.problem());
      if (round > 0) times[k].push_back(time);  // the first one warms up
    }
  }
  const auto ratio = [&](size_t k, size_t to) {
    std::vector<double> ratios;
    for (size_t r = 0; r < times[k].size(); ++r) ratios.push_back(times[k][r] / times[to][r]);
    return Median(ratios);
  };
  std::printf("%ld x %ld tokens, %ld heads of %ld, float32, %s, %d threads, %d rounds\n\n",
              static_cast<long>(shape.batch), static_cast<long>(shape.tokens),
              static_cast<long>(shape.heads), static_cast<long>(shape.dim), inputs.c_str(),
              at::get_num_threads(), rounds);
  std::printf("| kernel | ms | to %s | to exact |\n|---|---|---|---|\n", names.front().c_str());
  for (size_t k = 0; k < specs.size(); ++k) {
    std::printf("| %s | %.2f | %.2fx | %.2fx |\n", names[k].c_str(), Median(times[k]), ratio(k, 0),
                ratio(k, specs.size() - 1));
  }
  return 0;
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  castor::server::SetEnvironment(argv);
  castor::server::KeepFreedMemory();
  return castor::bench::Main(argc, argv);
}
