// Times exact attention of few query rows over many keys, as in decoding, and prints a table: the
// time to read the keys and values once, our rows of the variant table, LibTorch's
// scaled_dot_product_attention, and two of its products around a softmax.
//
//   attention_few_rows [--keys=16384,131072] [--libtorch=no] [SECONDS [HEADS KV_HEADS DIM]]
//
// Contestants take turns for SECONDS a line, by default 2; each cell has the least and the median
// milliseconds. OMP_NUM_THREADS sets the threads of all. Memory is allocated as in the server.

#include <ATen/Context.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/attention/variants.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/attention/batch.h"
#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

using attention::Variant;

// Sums of the tensor's words, so that no load can be left out.
void Read(const at::Tensor& tensor, std::vector<uint64_t>* sums) {
  using Line [[gnu::vector_size(64)]] = uint64_t;
  constexpr int64_t kTaskBytes = 256 << 10;
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  const auto read = [&](int worker, int64_t task) {
    const auto* const from = reinterpret_cast<const Line*>(
        static_cast<const std::byte*>(tensor.const_data_ptr()) + task * kTaskBytes);
    const int64_t lines = std::min(kTaskBytes, bytes - task * kTaskBytes) / 64;
    Line sum[4] = {};
    for (int64_t i = 0; i + 4 <= lines; i += 4) {
      for (int u = 0; u < 4; ++u) sum[u] += from[i + u];
    }
    const Line all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (int i = 0; i < 8; ++i) (*sums)[worker] += all[i];
  };
  const int64_t tasks = (bytes + kTaskBytes - 1) / kTaskBytes;
  if (!attention::ParallelFor(tasks, 1e12, RunToEnd(), read).ok()) Die("reading failed");
}

// [tokens, heads, dim] as [1, heads, tokens, dim].
at::Tensor ByHead(const at::Tensor& packed) { return packed.transpose(0, 1).unsqueeze(0); }

void Sdpa(const Batch& decode) {
  const at::Tensor out = at::scaled_dot_product_attention(
      ByHead(decode.query), ByHead(decode.key), ByHead(decode.value), std::nullopt, /*dropout_p=*/0,
      /*is_causal=*/false, /*scale=*/std::nullopt, /*enable_gqa=*/decode.spec.group() > 1);
  ByHead(decode.output).copy_(out);
}

// Heads that share keys are rows of one product.
void Products(const Batch& decode) {
  const attention::Spec& spec = decode.spec;
  const auto by_kv_head = [&](const at::Tensor& rows) {
    return rows.view({-1, spec.kv_heads, spec.group(), spec.head_dim}).permute({1, 0, 2, 3});
  };
  const at::Tensor query =
      by_kv_head(decode.query).reshape({spec.kv_heads, -1, spec.head_dim}).mul(spec.softmax_scale);
  const at::Tensor scores = at::matmul(query, decode.key.permute({1, 2, 0}));
  const at::Tensor out = at::matmul(at::softmax(scores, -1), decode.value.transpose(0, 1));
  by_kv_head(decode.output).copy_(out.view({spec.kv_heads, -1, spec.group(), spec.head_dim}));
}

struct Contestant {
  std::string name;
  std::function<void()> run;
  double spent = 0;  // seconds
  std::vector<double> ms = {};
};

void Line(Shape shape, DType dtype, int32_t rows, int32_t keys, double seconds, bool libtorch) {
  shape.queries = {rows};
  shape.keys = {keys};
  const Batch decode(dtype, shape);
  std::vector<uint64_t> sums(attention::ParallelWorkers());
  std::vector<Contestant> all = {{"read", [&] {
                                    Read(decode.key, &sums);
                                    Read(decode.value, &sums);
                                  }}};
  for (const Variant& row : attention::CpuVariants()) {
    if (row.kernel != KernelName::kVanilla || !row.supports(decode.spec)) continue;
    if (row.backend == "cpu-portable") continue;
    all.push_back({std::string(row.backend), [&] {
                     if (!row.run(decode.spec, {&decode.problem, 1}, RunToEnd()).ok()) {
                       Die("the kernel failed");
                     }
                   }});
  }
  if (libtorch) {
    all.push_back({"sdpa", [&] { Sdpa(decode); }});
    all.push_back({"products", [&] { Products(decode); }});
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  // The first turn is cold, and counts only for those that take long.
  for (int turn = 0; turn < 4 || since(begin) < seconds; ++turn) {
    for (Contestant& contestant : all) {
      if (!contestant.ms.empty() && contestant.spent > seconds) continue;
      const Clock::time_point from = Clock::now();
      contestant.run();
      contestant.spent += since(from);
      if (turn > 0 || contestant.spent > seconds) contestant.ms.push_back(since(from) * 1e3);
    }
  }
  static bool titled = false;
  if (!titled) {
    std::string rule = "|---|---|---|";
    std::printf("| type | keys | rows |");
    for (const Contestant& contestant : all) {
      std::printf(" %s |", contestant.name.c_str());
      rule += "---|";
      if (contestant.name.starts_with("cpu-")) {
        std::printf(" x read |");
        rule += "---|";
      }
    }
    std::printf("\n%s\n", rule.c_str());
    titled = true;
  }
  std::printf("| %s | %d | %d |", std::string(NameOf(dtype)).c_str(), keys, rows);
  double read = 0;
  for (Contestant& contestant : all) {
    const double least = *std::min_element(contestant.ms.begin(), contestant.ms.end());
    if (read == 0) read = least;
    std::printf(" %.2f, %.2f |", least, Median(contestant.ms));
    if (contestant.name.starts_with("cpu-")) std::printf(" %.2f |", least / read);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using namespace castor;
  server::SetEnvironment(argv, environ);
  server::KeepFreedMemory();
  const bool libtorch = bench::TakeFlag("libtorch", &argc, argv, "yes") == "yes";
  std::istringstream all_keys(bench::TakeFlag("keys", &argc, argv, "16384,131072"));
  if (argc != 1 && argc != 2 && argc != 5) bench::Die("usage: see the top of the source");
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  bench::Shape shape = {.heads = 32, .kv_heads = 8, .dim = 128};
  if (argc == 5) shape = {std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  const c10::InferenceMode inference;
  for (std::string keys; std::getline(all_keys, keys, ',');) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const int32_t rows : {1, 4, 16}) {
        bench::Line(shape, dtype, rows, std::atoi(keys.c_str()), seconds, libtorch);
      }
    }
  }
}
