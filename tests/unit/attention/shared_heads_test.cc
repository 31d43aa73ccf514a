// Heads that share keys and values get, on every row of the CPU's variant table, the bytes that
// they get where each has a copy of its own.

#include <gtest/gtest.h>

#include <vector>

#include "engine/attention/parallel.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {
namespace {

class SharedHeadsTest : public VariantTest {
 protected:
  static bool cast() { return GetParam().kernel == KernelName::kCast; }

  // This row's kernel in turn with its masks and options.
  Kernel KernelOf(int round) {
    switch (GetParam().kernel) {
      case KernelName::kVanilla:
        return Vanilla{.causal = round % 3 == 1};
      case KernelName::kClustered:
        return PlainClusters(UpTo(30), random_());
      case KernelName::kImprovedClustered: {
        const ImprovedClustered kernel = ImprovedClusters(UpTo(30), UpTo(40), random_());
        return round % 2 == 0 ? kernel : WithOptionsBeyondThePaper(kernel);
      }
      case KernelName::kCast:
        return CastReading(round % kCastReadings);
    }
    return Vanilla{};
  }

  // Draws a problem, runs it, and runs it again with keys and values for each head.
  void ExpectTheSameRepeated(const Spec& spec, const std::vector<int32_t>& queries,
                             const std::vector<int32_t>& keys) {
    SCOPED_TRACE(Describe(spec));
    Spec each = spec;
    each.kv_heads = spec.heads;
    each.value_is_key_prefix = false;
    OwnedProblem shared(spec, queries, keys, {1, 2, 3, 4});
    OwnedProblem repeated(each, queries, keys);
    shared.Randomize(random_);
    RepeatHeads(shared, repeated);
    CastProblem layer(each, cast() ? queries : std::vector<int32_t>{1}, random_);
    shared.view.cast = repeated.view.cast = layer.problem.view.cast;
    Run(shared);
    Run(repeated);
    EXPECT_EQ(shared.log_sum_exp, repeated.log_sum_exp);
    for (int64_t token = 0; token < shared.view.query_tokens(); ++token) {
      for (int64_t i = 0; i < spec.heads * spec.value_dim; ++i) {
        const int64_t head = i / spec.value_dim;
        const int64_t e = i % spec.value_dim;
        ASSERT_EQ(shared.Output(token, head, e), repeated.Output(token, head, e))
            << "token " << token << " head " << head << " element " << e;
      }
    }
  }
};

TEST_P(SharedHeadsTest, GetTheBytesOfRepeatedKeysAndValues) {
  const int threads = ParallelWorkers();
  const std::vector<int32_t> few = {1, 40, 7};
  const std::vector<int32_t> many = {kSanitized ? 100 : 450};
  for (int round = 0; round < 24; ++round) {
    SetParallelWorkers(round % 2 == 0 ? 1 : 5);
    Spec spec = MakeSpec(kFloatTypes[round % 3], KernelOf(round), 12, 40, 33, cast() ? 5 : 0);
    const int64_t kv_heads[] = {1, 2, 3, 4, 6, 12};
    spec.kv_heads = kv_heads[round % 6];
    spec.value_is_key_prefix = round % 4 == 3;
    spec.log_sum_exp = !cast();
    const bool vanilla = GetParam().kernel == KernelName::kVanilla;
    if (vanilla && round % 3 == 2) spec.window = SymmetricWindow(30);
    const bool alone = cast() || spec.window.any() ||
                       (vanilla && std::get<Vanilla>(spec.kernel).causal);  // self-attention
    ExpectTheSameRepeated(spec, few, alone ? few : std::vector<int32_t>{300, 2, 130});
    if (round % 4 == 0) ExpectTheSameRepeated(spec, many, many);
  }
  SetParallelWorkers(threads);
}

INSTANTIATE_TEST_SUITE_P(Table, SharedHeadsTest,
                         testing::ValuesIn(CpuRows({KernelName::kVanilla, KernelName::kClustered,
                                                    KernelName::kImprovedClustered,
                                                    KernelName::kCast})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention
