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
    OwnedProblem problem(spec, lengths, lengths);
    problem.Randomize(random_);
    const auto view = [&](Elements& elements, int64_t heads, int64_t dim) {
      return at::from_blob(elements.data(), {problem.view.query_tokens(), heads, dim},
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
                             .count = problem.view.sequences()});
    view(problem.output, spec.heads, spec.value_dim).copy_(rows);
    std::vector<double> log_sum_exp;
    const std::vector<double> expected = VanillaReference(spec, problem.view, &log_sum_exp);
    EXPECT_LE(RelativeError(problem, expected), Tolerance(spec.dtype))
        << Describe(spec) << ", " << lengths.size() << " sequences, the first of " << lengths[0];
    ASSERT_EQ(logs.defined(), spec.log_sum_exp);
    for (size_t i = 0; spec.log_sum_exp && i < log_sum_exp.size(); ++i) {
      ASSERT_NEAR(logs.const_data_ptr<float>()[i], log_sum_exp[i],
                  4e-6 * std::max(1.0, std::abs(log_sum_exp[i])))
          << Describe(spec) << ", row " << i;
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
    const int64_t reach = UpTo(60) - 1;
    std::vector<float> table(heads * (2 * reach + 1));
    for (float& bias : table) bias = static_cast<float>(UpTo(1000)) / 300;
    std::vector<float> slopes(heads);
    for (float& slope : slopes) slope = static_cast<float>(UpTo(1000)) / 2000;
    if (round % 8 >= 4) spec.bias = {.table = table.data(), .reach = reach, .slopes = nullptr};
    if (round % 8 >= 6) spec.bias.slopes = slopes.data();
    if (round % 4 >= 2) spec.window = UpTo(50) - 1;
    if (round % 7 == 0) spec.softmax_scale = -spec.softmax_scale;
    if (round == 7) spec.softmax_scale = 0;
    spec.log_sum_exp = round % 3 != 0;
    ExpectRight(spec, {UpTo(300), UpTo(20)});
  }
}

// Rows come in blocks of at most kMathMostRows, each with the keys that it sees.
TEST_F(VanillaMathTest, AWindowReachesAcrossBlocksOfRows) {
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 8);
  spec.window = 70;
  ExpectRight(spec, {static_cast<int32_t>(2 * kMathMostRows + 100)});
}

}  // namespace
}  // namespace castor::attention::cuda
