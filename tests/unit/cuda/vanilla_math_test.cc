// The math path of exact attention on a GPU, computed on the host: it is made of LibTorch's
// operators, which do the same there. Against the double-precision twin.
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/vanilla_cuda.h"
#include "engine/attention/scalar_type.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention::cuda {
namespace {

class VanillaMathTest : public testing::Test, protected Seeded {
 protected:
  void ExpectRight(const Spec& spec, const std::vector<int32_t>& lengths) {
    ExpectRight(spec, lengths, lengths);
  }

  void ExpectRight(const Spec& spec, const std::vector<int32_t>& lengths,
                   const std::vector<int32_t>& key_lengths) {
    OwnedProblem problem(spec, lengths, key_lengths);
    problem.Randomize(random_);
    ExpectRight(spec, lengths, problem);
  }

  static void ExpectRight(const Spec& spec, const std::vector<int32_t>& lengths,
                          OwnedProblem& problem) {
    const auto view = [&](Elements& elements, int64_t heads, int64_t dim) {
      return at::from_blob(elements.data(), {elements.size() / heads / dim, heads, dim},
                           at::TensorOptions().dtype(ScalarTypeOf(spec.dtype)));
    };
    const at::Tensor key = view(problem.key, spec.kv_heads, spec.head_dim);
    const auto [rows, logs] =
        MathAttention(spec, {.query = view(problem.query, spec.heads, spec.head_dim),
                             .key = key,
                             .value = spec.value_is_key_prefix
                                          ? key.narrow(2, 0, spec.value_dim)
                                          : view(problem.value, spec.kv_heads, spec.value_dim),
                             .cu_seqlens_q = problem.cu_seqlens_q,
                             .cu_seqlens_k = problem.cu_seqlens_k,
                             .first = 0,
                             .count = problem.view.sequences(),
                             .problem = problem.view});
    view(problem.output, spec.heads, spec.value_dim).copy_(rows);
    std::vector<double> log_sum_exp;
    const std::vector<double> expected = VanillaReference(spec, problem.view, &log_sum_exp);
    EXPECT_LE(RelativeError(problem, expected), Tolerance(spec.dtype))
        << Describe(spec) << ", " << lengths.size() << " sequences, the first of " << lengths[0];
    ASSERT_EQ(logs.defined(), spec.log_sum_exp);
    for (size_t i = 0; spec.log_sum_exp && i < log_sum_exp.size(); ++i) {
      const double log_sum = logs.const_data_ptr<float>()[i];
      ASSERT_TRUE(IsNear(log_sum, log_sum_exp[i], 4e-6))
          << log_sum << " for " << log_sum_exp[i] << ", " << Describe(spec) << ", row " << i;
    }
  }
};

TEST_F(VanillaMathTest, MatchesTheReferenceOnRandomShapes) {
  for (int round = 0; round < 40; ++round) {
    const int64_t heads = UpTo(4);
    Spec spec = MakeSpec(round % 2 == 0 ? DType::kFloat32 : DType::kBFloat16,
                         Vanilla{.causal = round % 5 == 4}, heads, UpTo(40), UpTo(40));
    while (spec.heads % (spec.kv_heads = UpTo(4)) != 0) continue;
    spec.value_is_key_prefix = round % 3 == 0 && spec.value_dim <= spec.head_dim;
    const RandomScores scores(spec, random_);
    if (round % 7 == 0) spec.softmax_scale = -spec.softmax_scale;
    if (round == 7) spec.softmax_scale = 0;
    spec.log_sum_exp = round % 3 != 0;
    ExpectRight(spec, {UpTo(300), UpTo(20)}, {UpTo(300), UpTo(20)});
  }
}

// Rows come in blocks of at most kMathMostRows, each with the keys that it sees.
TEST_F(VanillaMathTest, AWindowReachesAcrossBlocksOfRows) {
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 8);
  spec.window = SymmetricWindow(70);
  ExpectRight(spec, {static_cast<int32_t>(2 * kMathMostRows + 100)});
}

// In float32, far distances are alike.
TEST_F(VanillaMathTest, SlopesAreExactHoweverFarTheKeysAre) {
  const std::vector<float> slopes = {0.5f, -0.01f};
  for (const int64_t shift : {int64_t{-1} << 31, int64_t{-30}, int64_t{1} << 31}) {
    Spec spec = WithLogSumExp(MakeSpec(DType::kFloat32, Vanilla{}, 2, 16, 16));
    spec.bias.slopes = slopes.data();
    spec.placed = true;
    OwnedProblem problem(spec, {60}, {170});
    problem.Randomize(random_);
    problem.places[0].shift = shift;
    ExpectRight(spec, {60}, problem);
  }
}

// A bias that libraries hide keys by, and no -Inf: the row's keys count alike.
TEST_F(VanillaMathTest, ARowOfLeastBiasesIsNoRowWithoutKeys) {
  Spec spec = WithLogSumExp(MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 8));
  spec.key_bias_heads = 1;
  OwnedProblem problem(spec, {3}, {5});
  problem.Randomize(random_);
  std::fill(problem.key_bias.begin(), problem.key_bias.end(), -3.4028235e38f);
  ExpectRight(spec, {3}, problem);
}

}  // namespace
}  // namespace castor::attention::cuda
