// Properties of every row of the CPU's variant table and every kernel: a request's bytes depend
// neither on its batch nor on the threads, heads may share keys and values, NaN stays in its
// sequence, and any finite scale gives finite rows that follow the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/parallel.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/odd_scales.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {
namespace {

class EveryKernelTest : public VariantTest {
 protected:
  ~EveryKernelTest() override { SetParallelWorkers(threads_); }

  static bool cast() { return GetParam().kernel == KernelName::kCast; }

  // This row's kernel with each of its masks, options and readings.
  std::vector<Kernel> Kernels(int32_t cast_size = 0) {
    switch (GetParam().kernel) {
      case KernelName::kVanilla:
        return {Vanilla{}, Vanilla{.causal = true}};
      case KernelName::kClustered: {
        Clustered of_queries = PlainClusters(9, random_());
        of_queries.clustering = Clustered::Clustering::kQuerySpace;
        return {PlainClusters(20, random_()), of_queries};
      }
      case KernelName::kImprovedClustered: {
        const ImprovedClustered kernel = ImprovedClusters(9, 12, random_());
        return {kernel, ImprovedClusters(9, 1024), WithOptionsBeyondThePaper(kernel)};
      }
      case KernelName::kCast: {
        std::vector<Kernel> readings;
        for (int reading = 0; reading < kCastReadings; ++reading) {
          const Cast kernel = CastReading(reading, cast_size);
          const bool single = kernel.clustering == Cast::Clustering::kSingleAssignmentTopK;
          if (cast_size == 0 || !single) readings.push_back(kernel);
        }
        return readings;
      }
    }
    return {};
  }

  // More keys than the kernel holds scores of at a time, and few; but no CAST cluster may be empty.
  static std::vector<int32_t> Lengths() {
    return {GetParam().kernel == KernelName::kImprovedClustered ? 1100 : 140, 5};
  }
  static void RunIt(OwnedProblem& problem) { Run(problem); }

  static constexpr int64_t kHeads = kSanitized ? 1 : 2;

 private:
  const int threads_ = ParallelWorkers();
};

TEST_P(EveryKernelTest, AloneAndInAnyBatchGivesTheSameBytes) {
  int round = 0;
  for (const Kernel& kernel : Kernels()) {
    for (const DType dtype : kFloatTypes) {
      if ((kSanitized || cast()) && dtype != kFloatTypes[round++ % 3]) continue;
      Spec spec = MakeSpec(dtype, kernel, 3, 32, 40, 5);
      spec.log_sum_exp = !cast();
      std::optional<RandomScores> scores;
      if (!cast()) scores.emplace(spec, random_);
      std::vector<std::unique_ptr<CastProblem>> requests;
      std::vector<std::vector<std::byte>> alone;
      std::vector<std::vector<float>> logs_alone;
      std::vector<Problem> batch;
      for (int i = 0; i < 6; ++i) {
        const std::vector<int32_t> lengths = {UpTo(kSanitized ? 200 : 1300), 3};
        requests.push_back(std::make_unique<CastProblem>(spec, lengths, random_));
        OwnedProblem& problem = requests.back()->problem;
        Run(problem);
        alone.push_back(problem.output.bytes());
        logs_alone.push_back(problem.log_sum_exp);
        problem.output.Clear();
        std::fill(problem.log_sum_exp.begin(), problem.log_sum_exp.end(), NAN);
        batch.push_back(problem.view);
      }
      std::shuffle(batch.begin(), batch.end(), random_);
      Run(spec, batch);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(requests[i]->problem.output.bytes(), alone[i]) << Describe(spec);
        EXPECT_EQ(requests[i]->problem.log_sum_exp, logs_alone[i]) << Describe(spec);
      }
    }
  }
}

// One sequence: fewer heads than threads, so that threads share what can be shared. Several: each
// thread has heads of its own.
TEST_P(EveryKernelTest, AnyNumberOfThreadsGivesTheSameBytesEachTime) {
  for (const Kernel& kernel : Kernels()) {
    for (const auto& lengths :
         {std::vector<int32_t>{kSanitized ? 500 : 2500}, std::vector<int32_t>{900, 5, 300, 1}}) {
      CastProblem layer(MakeSpec(UsualType(), kernel, 2, 32, 32, 9), lengths, random_);
      SetParallelWorkers(1);
      Run(layer.problem);
      const std::vector<std::byte> alone = layer.problem.output.bytes();
      for (const int threads : {2, 3, 3, 3, 16}) {
        SetParallelWorkers(threads);
        layer.problem.output.Clear();
        Run(layer.problem);
        ASSERT_EQ(layer.problem.output.bytes(), alone)
            << threads << " threads, " << Describe(layer.problem.spec);
      }
    }
  }
}

TEST_P(EveryKernelTest, SharedHeadsGetTheBytesOfRepeatedKeysAndValues) {
  const int64_t kv_heads[] = {1, 2, 3, 4, 6, 12};
  int round = 0;
  for (const Kernel& kernel : Kernels()) {
    for (int repeat = 0; repeat < (cast() ? 1 : 8); ++repeat, ++round) {
      SetParallelWorkers(round % 2 == 0 ? 1 : 5);
      Spec spec = MakeSpec(kFloatTypes[round % 3], kernel, 12, 40, 33, cast() ? 5 : 0);
      spec.kv_heads = kv_heads[round % 6];
      spec.value_is_key_prefix = round % 4 == 3;
      spec.log_sum_exp = !cast();
      if (GetParam().kernel == KernelName::kVanilla && round % 3 == 2) {
        spec.window = SymmetricWindow(30);
      }
      SCOPED_TRACE(Describe(spec));
      Spec each = spec;
      each.kv_heads = spec.heads;
      each.value_is_key_prefix = false;
      const std::vector<int32_t> lengths = round % 4 == 0
                                               ? std::vector<int32_t>{kSanitized ? 100 : 450}
                                               : std::vector<int32_t>{1, 40, 7};
      OwnedProblem shared(spec, lengths, lengths, {1, 2, 3, 4});
      CastProblem repeated(each, lengths, random_);
      shared.Randomize(random_);
      RepeatHeads(shared, repeated.problem);
      shared.view.cast = repeated.problem.view.cast;
      Run(shared);
      Run(repeated.problem);
      EXPECT_EQ(shared.log_sum_exp, repeated.problem.log_sum_exp);
      for (int64_t token = 0; token < shared.view.query_tokens(); ++token) {
        for (int64_t i = 0; i < spec.heads * spec.value_dim; ++i) {
          ASSERT_EQ(shared.Output(token, i / spec.value_dim, i % spec.value_dim),
                    repeated.problem.Output(token, i / spec.value_dim, i % spec.value_dim))
              << "token " << token << " element " << i;
        }
      }
    }
  }
}

// Poison in any input must neither leave its sequence nor stop an assignment.
TEST_P(EveryKernelTest, NotANumberStaysInItsSequence) {
  const std::vector<int32_t> lengths = {20, Lengths()[0], 10};
  const int64_t end = 20 + lengths[1];
  for (const Kernel& kernel : Kernels()) {
    for (const double poison : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
      for (int which = 0; which < 4; ++which) {  // one of the tensors, or all
        if (cast() && which < 3) continue;
        Spec spec = MakeSpec(UsualType(), kernel, 2, 16, 16, 3);
        spec.log_sum_exp = !cast();
        std::mt19937 same = random_;
        CastProblem clean(spec, lengths, random_);
        CastProblem layer(spec, lengths, same);
        OwnedProblem& problem = layer.problem;
        Elements* const tensors[] = {&problem.query, &problem.key, &problem.value};
        for (int t = 0; t < 3; ++t) {
          if (which != t && which != 3) continue;
          for (int64_t i = 20 * 32; i < end * 32; i += 7) tensors[t]->Set(i, poison);
        }
        if (which == 3) {
          for (int64_t i = 20; i < end; i += 3) layer.gate[i] = static_cast<float>(poison);
        }
        Run(problem);
        Run(clean.problem);
        SCOPED_TRACE(Describe(spec));
        for (int64_t i = 0; i < problem.output.size(); ++i) {
          if (i >= 20 * 32 && i < end * 32) continue;
          ASSERT_EQ(problem.output.Get(i), clean.problem.output.Get(i)) << i;
        }
        for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
          if (i >= 20 * 2 && i < static_cast<size_t>(end) * 2) continue;
          ASSERT_EQ(problem.log_sum_exp[i], clean.problem.log_sum_exp[i]) << i;
        }
        if (which == 3 && std::isnan(poison)) {
          EXPECT_TRUE(std::isnan(problem.Output(20, 0, 0))) << "poison must show";
        }
      }
    }
  }
}

TEST_P(EveryKernelTest, AScaleNearZeroWeighsAllKeysAlike) {
  for (const DType dtype : kFloatTypes) {
    if (kSanitized && dtype != DType::kFloat32) continue;  // fewer cases
    for (const Kernel& kernel : Kernels(/*cast_size=*/2000)) {
      CastProblem layer(MakeSpec(dtype, kernel, kHeads, 8, 5, 3), Lengths(), random_);
      if (!IsLaplace(layer.problem.spec)) ExpectRowsOfScalesNearZero(layer.problem, RunIt);
    }
  }
}

TEST_P(EveryKernelTest, AnyScaleGivesFiniteRowsWhoseWeightsSumToOne) {
  for (const DType dtype : kFloatTypes) {
    if (kSanitized && dtype != DType::kFloat32) continue;  // fewer cases
    for (const Kernel& kernel : Kernels()) {
      CastProblem layer(MakeSpec(dtype, kernel, kHeads, 8, 5, 3), Lengths(), random_);
      ExpectFiniteRowsOfAnyScale(layer.problem, RunIt);
    }
  }
}

// A gate's temperature multiplies the scale. Rows must stay finite whatever the size of both.
TEST_P(EveryKernelTest, GatesOfAnySizeGiveFiniteRows) {
  if (!cast()) GTEST_SKIP() << "has no gates";
  for (const Kernel& kernel : Kernels()) {
    CastProblem layer(MakeSpec(DType::kFloat32, kernel, 2, 8, 5, 3), Lengths(), random_);
    for (size_t i = 0; i < layer.gate.size(); ++i) layer.gate[i] = i % 2 == 0 ? 3e38f : -3e38f;
    ExpectFiniteRowsOfAnyScale(layer.problem, RunIt);
  }
}

// However large its biases, a row that sees a key is a mean, and its log-sum-exp finite.
TEST_P(EveryKernelTest, KeyBiasesOfAnySizeLeaveAMeanOfWhatIsSeen) {
  if (cast()) GTEST_SKIP() << "takes none";
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const Kernel& kernel : Kernels()) {
    Spec spec = WithLogSumExp(MakeSpec(DType::kFloat32, kernel, kHeads, 8, 5, 3));
    spec.key_bias_heads = 1;
    CastProblem layer(spec, Lengths(), random_);
    OwnedProblem& problem = layer.problem;
    for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
    for (const auto& biases : std::vector<std::vector<float>>{{-kMost},
                                                              {-kMost, 0, -kMost},
                                                              {0, kMost, -1e30f},
                                                              {-INFINITY, -kMost, -INFINITY},
                                                              {1e-40f, -1e-45f}}) {
      for (size_t i = 0; i < problem.key_bias.size(); ++i) {
        problem.key_bias[i] = biases[i % biases.size()];
      }
      for (const double scale : {0.3, -2.0, 1e-30, 1e17}) {
        SCOPED_TRACE(testing::Message()
                     << Describe(spec) << " scale " << scale << ", biases from " << biases[0]);
        problem.spec.softmax_scale = scale;
        problem.output.Clear();
        Run(problem);
        double most = 0;
        for (int64_t i = 0; i < problem.output.size(); ++i) {
          const double off = std::abs(problem.output.Get(i) - 1);
          if (!(off <= most)) most = off;
        }
        // The first key of causal rows may be hidden, and then is all that they would see.
        const auto* const vanilla = std::get_if<Vanilla>(&kernel);
        if (vanilla != nullptr && vanilla->causal && std::isinf(biases[0])) continue;
        EXPECT_LE(most, 1e-5);
        EXPECT_TRUE(std::all_of(problem.log_sum_exp.begin(), problem.log_sum_exp.end(),
                                [](float log) { return std::isfinite(log); }));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryKernelTest,
                         testing::ValuesIn(CpuVariants().begin(), CpuVariants().end()), NameOfRow);

}  // namespace
}  // namespace castor::attention
