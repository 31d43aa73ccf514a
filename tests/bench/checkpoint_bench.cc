// The longest time that a run of the CPU's kernels can go without reaching a possible checkpoint,
// for requests of ordinary sizes and for the largest that the default limits admit.
//
// Prints, per problem, the longest time between two possible checkpoints on the engine thread, how
// many there were, and the time of the whole run. The run asks at every one, so the times are those
// of the steps themselves. A run that is watched every 2 ms takes at most that much longer to reach
// a checkpoint. Use OMP_NUM_THREADS=1 for one core, which is what the bound in engine/DESIGN.md
// refers to.
//   checkpoint_bench [WORD]    only problems whose line contains the word

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/variants.h"
#include "engine/base/run_control.h"
#include "tests/support/attention/spec.h"

namespace castor::attention {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

class Watch final : public RunControl {
 public:
  Watch() : RunControl(Duration::zero()) {}

  Clock::duration longest{};
  int64_t chances = 0;

 private:
  bool WantsCheckpoint() override {
    const Clock::time_point now = Clock::now();
    longest = std::max(longest, now - last_);
    last_ = now;
    ++chances;
    return false;
  }
  absl::Status AtCheckpoint() override { return absl::OkStatus(); }

  Clock::time_point last_ = Clock::now();
};

// Numbers from N(0, 1): a few thousand, repeated.
std::vector<float> Numbers(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> few(std::min<int64_t>(count, 65521));
  for (float& x : few) x = normal(random);
  std::vector<float> numbers(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = few[i % few.size()];
  return numbers;
}

struct Case {
  Kernel kernel;
  int64_t heads;
  int64_t dim;
  int32_t queries;  // of one sequence
  int32_t keys;
  int64_t surrogates = 0;
};

std::string NameOfCase(const Case& problem) {
  const Spec spec = MakeSpec(DType::kFloat32, problem.kernel, problem.heads, problem.dim,
                             problem.dim, problem.surrogates);
  return std::string(NameOf(NameOf(spec.kernel))) + " " + Describe(spec) + " " +
         std::to_string(problem.queries) + "x" + std::to_string(problem.keys);
}

void Time(const Case& problem) {
  const Spec spec = MakeSpec(DType::kFloat32, problem.kernel, problem.heads, problem.dim,
                             problem.dim, problem.surrogates);
  const int64_t row = problem.heads * problem.dim;
  const std::vector<float> query = Numbers(problem.queries * row);
  const std::vector<float> key = Numbers(problem.keys * row);
  const std::vector<float> surrogates = Numbers(problem.surrogates * row);
  const std::vector<float> gate = Numbers(problem.queries);
  std::vector<float> output(problem.queries * row);
  const std::vector<int32_t> cu_seqlens_q = {0, problem.queries};
  const std::vector<int32_t> cu_seqlens_k = {0, problem.keys};
  const auto bytes = [](const std::vector<float>& x) {
    return reinterpret_cast<const std::byte*>(x.data());
  };
  Problem view;
  view.query = bytes(query);
  view.key = view.value = bytes(key);
  view.output = reinterpret_cast<std::byte*>(output.data());
  view.query_stride = view.key_stride = view.value_stride = view.output_stride = row;
  view.cu_seqlens_q = cu_seqlens_q;
  view.cu_seqlens_k = cu_seqlens_k;
  view.cast.surrogates = bytes(surrogates);
  view.cast.gate = gate.data();
  const Clock::time_point start = Clock::now();
  Watch watch;
  if (!FindVariant(CpuVariants(), spec)->run(spec, {&view, 1}, watch).ok()) std::abort();
  std::printf("%-75s %8.2f ms %8lld %10.1f ms\n", NameOfCase(problem).c_str(),
              Milliseconds(watch.longest), static_cast<long long>(watch.chances),
              Milliseconds(Clock::now() - start));
  std::fflush(stdout);
}

std::vector<Case> Cases() {
  using Clustering = Cast::Clustering;
  const auto per_head = [](Cast kernel) {
    kernel.head_clustering = Cast::HeadClustering::kPerHead;
    return kernel;
  };
  constexpr int32_t kMost = 1 << 20;
  const Cast single = CastOf(0, Clustering::kSingleAssignmentTopK);
  return {
      {Vanilla{}, 8, 64, 4096, 4096},
      {Vanilla{}, 1, 64, 192, kMost},
      {Vanilla{}, 1, 1, 1000, kMost},
      {Vanilla{}, 1, 256, 192, kMost / 2},
      {Vanilla{}, 1, 16384, 512, 512},
      {Vanilla{}, 1, 131072, 128, 512},
      {PlainClusters(100), 8, 64, 16384, 16384},
      {PlainClusters(100), 1, 16, kMost, kMost},
      {PlainClusters(100), 2, 16, kMost / 2, kMost / 2},
      {PlainClusters(4096), 2, 16, kMost / 8, kMost / 8},
      {PlainClusters(65536), 2, 16, kMost / 16, kMost / 16},
      {PlainClusters(2), 1, 64, kMost, 128},
      {PlainClusters(100), 1, 16384, 512, 512},
      {ImprovedClusters(100, 32), 8, 64, 16384, 16384},
      {ImprovedClusters(100, 32), 1, 16, kMost, kMost},
      {ImprovedClusters(2, 1024), 1, 64, kMost / 4, 4096},
      {ImprovedClusters(100, 32), 1, 16384, 512, 512},
      {CastOf(0), 8, 64, 16384, 16384, 64},
      {CastOf(0), 1, 16, kMost / 4, kMost / 4, 16},
      {CastOf(0), 1, 8, kMost / 8, kMost / 8, 1},
      {CastOf(64), 2, 16, kMost, kMost, 128},
      {CastOf(64), 4, 16, kMost / 16, kMost / 16, 4096},
      {single, 1, 16, kMost, kMost, 512},
      {per_head(single), 4, 16, kMost / 4, kMost / 4, 256},
      {CastOf(0), 1, 16384, 512, 512, 64},
  };
}

}  // namespace
}  // namespace castor::attention

int main(int argc, char** argv) {
  for (const auto& problem : castor::attention::Cases()) {
    const std::string name = castor::attention::NameOfCase(problem);
    if (argc < 2 || std::strstr(name.c_str(), argv[1]) != nullptr) castor::attention::Time(problem);
  }
}
