// The plain twin of the GPU's ragged pooling, against the definition.

#include "engine/kernels/pool_rows.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace castor::kernels {
namespace {

struct Case {
  std::vector<float> rows;  // [tokens, stride]
  std::vector<int64_t> offsets;
  int64_t stride = 0;
};

Case RandomCase(std::mt19937& random, int64_t stride) {
  Case made;
  made.stride = stride;
  made.offsets = {0};
  const int sequences = 1 + static_cast<int>(random() % 9);
  for (int s = 0; s < sequences; ++s)
    made.offsets.push_back(made.offsets.back() + 1 + random() % 40);
  std::normal_distribution<float> normal;
  made.rows.resize(made.offsets.back() * stride);
  for (float& value : made.rows) value = normal(random);
  return made;
}

PoolRows ProblemOf(const Case& c, int64_t dimensions, std::vector<float>& output) {
  PoolRows problem;
  problem.rows = c.rows.data();
  problem.row_stride = c.stride;
  problem.offsets = c.offsets.data();
  problem.sequences = static_cast<int64_t>(c.offsets.size()) - 1;
  problem.dimensions = dimensions;
  output.assign(problem.sequences * dimensions, -1);
  problem.output = output.data();
  return problem;
}

TEST(PoolRowsTest, MeansAndCutsAndNormalises) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const Case c = RandomCase(random, 3 + random() % 70);
    const int64_t dimensions = 1 + random() % c.stride;
    std::vector<float> output;
    PoolRows problem = ProblemOf(c, dimensions, output);
    problem.mean = random() % 2;
    problem.normalize = random() % 2;
    cpu::Run(problem);
    for (int64_t s = 0; s < problem.sequences; ++s) {
      std::vector<double> expected(dimensions, 0);
      const int64_t tokens = problem.mean ? c.offsets[s + 1] - c.offsets[s] : 1;
      double squares = 0;
      for (int64_t d = 0; d < dimensions; ++d) {
        for (int64_t t = 0; t < tokens; ++t)
          expected[d] += c.rows[(c.offsets[s] + t) * c.stride + d];
        expected[d] /= static_cast<double>(tokens);
        squares += expected[d] * expected[d];
      }
      for (int64_t d = 0; d < dimensions; ++d) {
        const double wanted = problem.normalize ? expected[d] / std::sqrt(squares) : expected[d];
        EXPECT_NEAR(output[s * dimensions + d], wanted, 1e-6);
      }
    }
  }
}

TEST(PoolRowsTest, LeavesARowOfZerosAlone) {
  Case c{std::vector<float>(8, 0.0f), {0, 2}, 4};
  std::vector<float> output;
  PoolRows problem = ProblemOf(c, 4, output);
  problem.normalize = true;
  cpu::Run(problem);
  for (float value : output) EXPECT_EQ(value, 0);
}

// Every bit pattern of both half types goes through the twin's own conversion.
template <typename T>
void ExpectConverts(Element element) {
  std::vector<T> rows;
  std::vector<int64_t> offsets = {0};
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    rows.push_back(T(static_cast<uint16_t>(bits), T::from_bits()));
    offsets.push_back(bits + 1);
  }
  std::vector<float> output(65536);
  PoolRows problem{rows.data(), element, 1, offsets.data(), 65536, 1, false, false, output.data()};
  cpu::Run(problem);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wanted = static_cast<float>(rows[bits]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(output[bits])) << bits;
    } else {
      EXPECT_EQ(output[bits], wanted) << bits;
    }
  }
}

TEST(PoolRowsTest, ReadsHalf) { ExpectConverts<c10::Half>(Element::kFloat16); }
TEST(PoolRowsTest, ReadsBFloat16) { ExpectConverts<c10::BFloat16>(Element::kBFloat16); }

TEST(FlagNonFiniteTest, FlagsOnlyTheSequenceThatHoldsOne) {
  std::mt19937 random(std::random_device{}());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Case c = RandomCase(random, 5);
    const auto sequences = static_cast<int64_t>(c.offsets.size()) - 1;
    const int64_t chosen = random() % sequences;
    c.rows[(c.offsets[chosen + 1] - 1) * c.stride + 4] = bad;
    std::vector<int32_t> flags(sequences, -1);
    cpu::Run(FlagNonFinite{c.rows.data(), Element::kFloat32, c.stride, 5, c.offsets.data(),
                           sequences, flags.data()});
    for (int64_t s = 0; s < sequences; ++s) EXPECT_EQ(flags[s], s == chosen ? 1 : 0);
  }
}

}  // namespace
}  // namespace castor::kernels
