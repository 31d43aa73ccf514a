#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "client/tensor.h"
#include "tests/support/seeded.h"

namespace castor::client {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

v1::AttendResponse Part(const std::vector<float>& output, const std::vector<float>& log_sum_exp,
                        v1::DataType dtype = v1::FLOAT32) {
  const auto rows = static_cast<int64_t>(log_sum_exp.size());
  const int64_t dim = static_cast<int64_t>(output.size()) / rows;
  v1::AttendResponse part;
  *part.mutable_output() = MakeTensor(output, {rows, 1, dim}, dtype);
  *part.mutable_log_sum_exp() = MakeTensor(log_sum_exp, {rows, 1});
  return part;
}

// Scores and values of one row, and the answer over some of its keys in double precision.
struct Row {
  std::vector<double> scores;
  std::vector<double> values;  // [keys, dim]
  int64_t dim;

  explicit Row(int64_t value_dim) : dim(value_dim) {}

  double Of(const std::vector<int64_t>& keys, std::vector<float>* output) const {
    double greatest = -INFINITY;
    for (const int64_t j : keys) greatest = std::max(greatest, scores[j]);
    double sum = 0;
    std::vector<double> row(dim);
    for (const int64_t j : keys) {
      const double weight = std::exp(scores[j] - greatest);
      sum += weight;
      for (int64_t e = 0; e < dim; ++e) row[e] += weight * values[j * dim + e];
    }
    for (const double element : row) {
      output->push_back(keys.empty() ? NAN : static_cast<float>(element / sum));
    }
    return keys.empty() ? -INFINITY : greatest + std::log(sum);
  }
};

class MergeTest : public ::testing::Test, protected Seeded {
 protected:
  // Random rows whose keys are divided among `parts` parts. The last response is the whole.
  std::vector<v1::AttendResponse> Divide(int parts, int64_t rows, int64_t dim,
                                         v1::DataType dtype = v1::FLOAT32) {
    std::normal_distribution<double> normal;
    const double spread = UpTo(20);
    std::vector<std::vector<float>> outputs(parts + 1), logs(parts + 1);
    for (int64_t i = 0; i < rows; ++i) {
      Row row(dim);
      std::vector<std::vector<int64_t>> keys(parts + 1);
      for (int64_t j = UpTo(40); j > 0; --j) {
        for (int p : {UpTo(parts) - 1, parts}) {
          keys[p].push_back(static_cast<int64_t>(row.scores.size()));
        }
        row.scores.push_back(spread * normal(random_));
        for (int64_t e = 0; e < dim; ++e) row.values.push_back(normal(random_));
      }
      for (int p = 0; p <= parts; ++p) {
        logs[p].push_back(static_cast<float>(row.Of(keys[p], &outputs[p])));
      }
    }
    std::vector<v1::AttendResponse> all;
    for (int p = 0; p <= parts; ++p) all.push_back(Part(outputs[p], logs[p], dtype));
    return all;
  }

  static void ExpectNear(const v1::AttendResponse& merged, const v1::AttendResponse& whole,
                         double tolerance) {
    ASSERT_EQ(ShapeOf(merged.output()), ShapeOf(whole.output()));
    ASSERT_EQ(merged.output().dtype(), whole.output().dtype());
    const auto output = ToFloats(merged.output()), expected = ToFloats(whole.output());
    // The parts' values, and so their rounding, are of size 1, even if their means cancel out.
    double difference = 0;
    for (size_t i = 0; i < output->size(); ++i) {
      difference += std::pow((*output)[i] - (*expected)[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / static_cast<double>(output->size())), tolerance);
    const auto log = ToFloats(merged.log_sum_exp()), exact = ToFloats(whole.log_sum_exp());
    for (size_t i = 0; i < log->size(); ++i) {
      EXPECT_NEAR((*log)[i], (*exact)[i], 3e-7 * std::max(1.0F, std::abs((*exact)[i])));
    }
  }
};

TEST_F(MergeTest, PartsInAnyOrderAndStagesGiveTheWhole) {
  for (int round = 0; round < 300; ++round) {
    const v1::DataType dtype = std::vector{v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16}[round % 3];
    const double tolerance = std::vector{1e-6, 2e-3, 1.6e-2}[round % 3];
    const int count = UpTo(6);
    std::vector<v1::AttendResponse> parts = Divide(count, UpTo(5), UpTo(9), dtype);
    const v1::AttendResponse whole = parts.back();
    parts.pop_back();
    const auto merged = MergeAttention(parts);
    ASSERT_TRUE(merged.ok()) << merged.status();
    ExpectNear(*merged, whole, tolerance);

    std::shuffle(parts.begin(), parts.end(), random_);
    ExpectNear(*MergeAttention(parts), *merged, tolerance);
    v1::AttendResponse so_far = parts[0];
    for (int p = 1; p < count; ++p) {
      so_far = *MergeAttention(std::vector<v1::AttendResponse>{so_far, parts[p]});
    }
    if (count > 1) ExpectNear(so_far, whole, 2 * tolerance);
  }
}

TEST_F(MergeTest, EmptyPartsAddNothingWhateverTheyHold) {
  const v1::AttendResponse some = Part({1, 2, 3, 4}, {5, -6});
  for (const float log : {-kInfinity, kInfinity}) {  // flash-attn 2 has +Inf
    const v1::AttendResponse none = Part({NAN, kInfinity, 7, 7}, {-kInfinity, log});
    for (const auto& parts : {std::vector{some, none}, std::vector{none, some, none}}) {
      const auto merged = MergeAttention(parts);
      ASSERT_TRUE(merged.ok());
      EXPECT_EQ(merged->output().raw(), some.output().raw());
      EXPECT_EQ(merged->log_sum_exp().raw(), some.log_sum_exp().raw());
    }
    for (const auto& parts : {std::vector{none}, std::vector{none, none}}) {
      const auto nothing = MergeAttention(parts);
      EXPECT_EQ(*ToFloats(nothing->output()), (std::vector<float>{0, 0, 0, 0}));
      EXPECT_EQ(*ToFloats(nothing->log_sum_exp()), (std::vector<float>{-kInfinity, -kInfinity}));
    }
  }
}

// A learned sink is a part without a value, whose log-sum-exp is the sink's logit.
TEST_F(MergeTest, ASinkOnlyAddsToTheDenominator) {
  const auto merged = MergeAttention(std::vector{Part({8}, {0}), Part({0}, {0})});
  EXPECT_EQ(*ToFloats(merged->output()), std::vector<float>{4});
  EXPECT_FLOAT_EQ((*ToFloats(merged->log_sum_exp()))[0], std::log(2.0F));
}

TEST_F(MergeTest, NotANumberShows) {
  for (const float other : {0.0F, -kInfinity}) {
    const auto merged =
        MergeAttention(std::vector{Part({1, 1}, {other, 0}), Part({1, 1}, {std::nanf(""), 0})});
    EXPECT_TRUE(std::isnan((*ToFloats(merged->output()))[0]));
    EXPECT_TRUE(std::isnan((*ToFloats(merged->log_sum_exp()))[0]));
    EXPECT_EQ((*ToFloats(merged->output()))[1], 1);
  }
}

TEST_F(MergeTest, RefusesPartsThatDoNotFit) {
  const v1::AttendResponse good = Part({1, 2}, {0});
  const auto problem = [&](auto change) {
    v1::AttendResponse bad = good;
    change(bad);
    const auto merged = MergeAttention(std::vector{good, bad});
    EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(merged.status().message());
  };
  using A = v1::AttendResponse;
  EXPECT_FALSE(MergeAttention({}).ok());
  EXPECT_THAT(problem([](A& a) { a.clear_log_sum_exp(); }),
              HasSubstr("part 1: has no log_sum_exp"));
  EXPECT_THAT(problem([](A& a) { a.mutable_log_sum_exp()->add_shape(2); }),
              HasSubstr("part 1: log_sum_exp [1, 1, 2] FLOAT32 does not belong"));
  EXPECT_THAT(problem([](A& a) { a.mutable_log_sum_exp()->set_dtype(v1::FLOAT16); }),
              HasSubstr("does not belong"));
  EXPECT_THAT(problem([](A& a) { a.mutable_log_sum_exp()->clear_raw(); }),
              HasSubstr("the values of log_sum_exp"));
  EXPECT_THAT(problem([](A& a) { a.mutable_output()->set_shape(2, 3); }),
              HasSubstr("output [1, 1, 3] FLOAT32 is not like part 0's"));
  EXPECT_THAT(problem([](A& a) { a.mutable_output()->set_dtype(v1::FLOAT16); }),
              HasSubstr("is not like part 0's"));
  EXPECT_THAT(problem([](A& a) { a.clear_output(); }), HasSubstr("output has no dimensions"));
  EXPECT_THAT(problem([](A& a) { a.mutable_output()->mutable_shared_memory(); }),
              HasSubstr("output has no floating-point values"));
}

}  // namespace
}  // namespace castor::client
