#include "client/cli/attend/exact_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "client/cli/report.h"
#include "client/tensor.h"
#include "tests/support/seeded.h"

namespace castor::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPlenty = 1'000'000'000;

// Sequences of 2 tokens and 1 token, one head of two dimensions: small enough to work out by hand.
v1::AttendRequest SmallRequest() {
  v1::AttendRequest request;
  *request.mutable_query() = client::MakeTensor(std::vector<float>{1, 0, 0, 1, 2, 2}, {3, 1, 2});
  *request.mutable_key() = client::MakeTensor(std::vector<float>{1, 0, 0, 1, 5, 5}, {3, 1, 2});
  *request.mutable_value() = client::MakeTensor(std::vector<float>{10, 20, 30}, {3, 1, 1});
  request.add_query_lengths(2);
  request.add_query_lengths(1);
  request.set_softmax_scale(1);
  return request;
}

// With two keys of scores 1 and 0, the first one's weight is e / (e + 1).
const double kWeight = std::exp(1.0) / (std::exp(1.0) + 1);

v1::Tensor SmallAnswer(bool causal) {
  const auto first = static_cast<float>(causal ? 10 : 10 * kWeight + 20 * (1 - kWeight));
  const auto second = static_cast<float>(10 * (1 - kWeight) + 20 * kWeight);
  return client::MakeTensor(std::vector<float>{first, second, 30}, {3, 1, 1});
}

// Of an answer without a log-sum-exp.
std::optional<CheckResult> CheckExactly(const v1::AttendRequest& request, const v1::Tensor& output,
                                        int64_t max_operations, std::string* problem) {
  v1::AttendResponse answer;
  *answer.mutable_output() = output;
  return cli::CheckExactly(request, answer, max_operations, problem);
}

TEST(CheckExactly, PassesTheRightAnswerAndCatchesAWrongOne) {
  std::string problem;
  v1::AttendRequest request = SmallRequest();
  auto result = CheckExactly(request, SmallAnswer(false), kPlenty, &problem);
  ASSERT_TRUE(result.has_value()) << problem;
  EXPECT_LT(result->relative_error, 1e-6);
  EXPECT_EQ(result->rows, 3);
  EXPECT_EQ(result->rows_checked, 3);

  result = CheckExactly(request, SmallAnswer(true), kPlenty, &problem);
  ASSERT_TRUE(result.has_value());
  EXPECT_GT(result->relative_error, 0.01) << "the causal answer is another one";
  request.mutable_vanilla()->set_causal(true);
  result = CheckExactly(request, SmallAnswer(true), kPlenty, &problem);
  ASSERT_TRUE(result.has_value());
  EXPECT_LT(result->relative_error, 1e-6);
}

// Two heads on one of keys, whose first element is their value.
TEST(CheckExactly, ReadsSharedHeadsAndValuesInKeys) {
  std::string problem;
  v1::AttendRequest request;
  *request.mutable_query() = client::MakeTensor(std::vector<float>{1, 0, 0, 1}, {1, 2, 2});
  *request.mutable_key() = client::MakeTensor(std::vector<float>{1, 0, 0, 1}, {2, 1, 2});
  request.add_query_lengths(1);
  request.add_key_lengths(2);
  request.set_softmax_scale(1);
  request.set_value_is_key_prefix(true);
  request.set_value_dim(1);
  const auto answer = [](double second) {
    return client::MakeTensor(
        std::vector<float>{static_cast<float>(kWeight), static_cast<float>(second)}, {1, 2, 1});
  };
  auto result = CheckExactly(request, answer(1 - kWeight), kPlenty, &problem);
  ASSERT_TRUE(result.has_value()) << problem;
  EXPECT_LT(result->relative_error, 1e-6);
  result = CheckExactly(request, answer(kWeight), kPlenty, &problem);
  ASSERT_TRUE(result.has_value()) << problem;
  EXPECT_GT(result->relative_error, 0.1);
  for (const int64_t value_dim : {0, 3}) {
    request.set_value_dim(value_dim);
    EXPECT_EQ(CheckExactly(request, answer(1 - kWeight), kPlenty, &problem), std::nullopt);
  }
  request.set_value_dim(1);
  request.mutable_key()->set_shape(0, 1);
  request.mutable_key()->set_shape(1, 0);
  EXPECT_EQ(CheckExactly(request, answer(1 - kWeight), kPlenty, &problem), std::nullopt);
}

TEST(CheckExactly, NoticesNumbersThatAreNone) {
  std::string problem;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto result =
      CheckExactly(SmallRequest(), client::MakeTensor(std::vector<float>{1, nan, 30}, {3, 1, 1}),
                   kPlenty, &problem);
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->finite);
}

TEST(CheckExactly, RefusesAnswersThatDoNotFit) {
  std::string problem;
  const v1::Tensor wide = client::MakeTensor(std::vector<float>(6), {3, 1, 2});
  EXPECT_EQ(CheckExactly(SmallRequest(), wide, kPlenty, &problem), std::nullopt);
  EXPECT_THAT(problem, HasSubstr("[3, 1, 2]"));
  v1::Tensor half = client::MakeTensor(std::vector<float>(3), {3, 1, 1}, v1::FLOAT16);
  EXPECT_EQ(CheckExactly(SmallRequest(), half, kPlenty, &problem), std::nullopt);
  EXPECT_EQ(CheckExactly(SmallRequest(), v1::Tensor(), kPlenty, &problem), std::nullopt);
  v1::Tensor cut = SmallAnswer(false);
  cut.mutable_raw()->resize(8);
  EXPECT_EQ(CheckExactly(SmallRequest(), cut, kPlenty, &problem), std::nullopt);
  EXPECT_THAT(problem, HasSubstr("output has 8 bytes"));
}

TEST(CheckExactly, ChecksTheLogSumExpThatWasAskedFor) {
  v1::AttendRequest request = SmallRequest();
  request.set_return_log_sum_exp(true);
  v1::AttendResponse answer;
  *answer.mutable_output() = SmallAnswer(false);
  std::string problem;
  EXPECT_EQ(cli::CheckExactly(request, answer, kPlenty, &problem), std::nullopt);
  EXPECT_THAT(problem, HasSubstr("log_sum_exp is []"));

  // Scores of 1 and 0, and in the second sequence of 20.
  const auto two = static_cast<float>(std::log(std::exp(1.0) + 1));
  const auto error = [&](float third) {
    *answer.mutable_log_sum_exp() = client::MakeTensor(std::vector<float>{two, two, third}, {3, 1});
    const auto result = cli::CheckExactly(request, answer, kPlenty, &problem);
    return result.value().log_sum_exp_error.value();
  };
  EXPECT_LT(error(20), 1e-7);
  EXPECT_NEAR(error(22), 0.1, 1e-6) << "relative to the exact one";
  *answer.mutable_log_sum_exp() = client::MakeTensor(std::vector<float>{two, NAN, 20}, {3, 1});
  EXPECT_FALSE(cli::CheckExactly(request, answer, kPlenty, &problem)->finite);
}

// An honest server refuses such a request; whoever answers it leads the check astray.
TEST(CheckExactly, RefusesRequestsWhoseLengthsAreNoneOfTheirTensors) {
  const auto problem_of = [](auto change) {
    v1::AttendRequest request = SmallRequest();
    change(request);
    std::string problem;
    EXPECT_EQ(CheckExactly(request, SmallAnswer(false), kPlenty, &problem), std::nullopt);
    return problem;
  };
  using R = v1::AttendRequest;
  const auto misfit = HasSubstr("do not fit together");
  EXPECT_THAT(problem_of([](R& r) { r.set_query_lengths(1, 1'000'000); }), misfit);
  EXPECT_THAT(problem_of([](R& r) { r.set_query_lengths(1, -1); }), misfit);
  EXPECT_THAT(problem_of([](R& r) { r.add_key_lengths(3); }), misfit);
  EXPECT_THAT(problem_of([](R& r) { r.clear_key(); }), misfit);
  EXPECT_THAT(problem_of([](R& r) { r.mutable_value()->mutable_shape()->RemoveLast(); }), misfit);
  const auto floats = [](std::vector<int64_t> shape, size_t count) {
    return client::MakeTensor(std::vector<float>(count), shape);
  };
  EXPECT_THAT(problem_of([](R& r) { r.mutable_positions()->add_query(1); }), misfit);
  EXPECT_THAT(problem_of([](R& r) { r.mutable_positions()->mutable_alibi_slopes()->Resize(2, 1); }),
              misfit);
  EXPECT_THAT(problem_of([&](R& r) {
                *r.mutable_positions()->mutable_relative_bias() = floats({1, 2}, 2);
              }),
              misfit);
  EXPECT_THAT(problem_of([&](R& r) { *r.mutable_key_bias() = floats({2}, 2); }), misfit);
  EXPECT_THAT(problem_of([&](R& r) {
                *r.mutable_key_bias() = floats({3, 1}, 3);
                r.mutable_key_bias()->mutable_raw()->pop_back();
              }),
              misfit);
}

// The first key hidden from its own sequence, and a causal mask whose queries end elsewhere.
TEST(CheckExactly, KnowsOfPositionsAndHiddenKeys) {
  v1::AttendRequest request = SmallRequest();
  request.mutable_vanilla()->set_causal(true);
  request.mutable_positions()->mutable_query()->Add(1);
  request.mutable_positions()->mutable_query()->Add(-1);
  *request.mutable_key_bias() =
      client::MakeTensor(std::vector<float>{-INFINITY, 0, 0}, std::vector<int64_t>{3});
  std::string problem;
  const v1::Tensor answer = client::MakeTensor(std::vector<float>{20, 20, 0}, {3, 1, 1});
  const auto result = CheckExactly(request, answer, kPlenty, &problem);
  ASSERT_TRUE(result.has_value()) << problem;
  EXPECT_EQ(result->relative_error, 0);
  EXPECT_TRUE(result->finite);
}

// [batch, tokens, ...] and its packed form give the same verdict on the same wrong answer.
TEST(CheckExactly, BatchedAndPackedFormsAgree) {
  const auto seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  auto values = [&](size_t count) {
    std::vector<float> result(count);
    for (float& value : result) value = normal(random);
    return result;
  };
  constexpr int64_t kBatch = 3, kTokens = 5, kHeads = 2, kDim = 4;
  v1::AttendRequest batched;
  for (v1::Tensor* tensor :
       {batched.mutable_query(), batched.mutable_key(), batched.mutable_value()}) {
    *tensor = client::MakeTensor(values(kBatch * kTokens * kHeads * kDim),
                                 {kBatch, kTokens, kHeads, kDim});
  }
  v1::Tensor answer =
      client::MakeTensor(values(kBatch * kTokens * kHeads * kDim), {kBatch, kTokens, kHeads, kDim});
  std::string problem;
  const auto expected = CheckExactly(batched, answer, kPlenty, &problem);
  ASSERT_TRUE(expected.has_value()) << problem;

  auto pack = [](v1::Tensor* tensor) {
    tensor->clear_shape();
    for (const int64_t dimension : {kBatch * kTokens, kHeads, kDim}) tensor->add_shape(dimension);
  };
  v1::AttendRequest packed = batched;
  for (v1::Tensor* tensor :
       {packed.mutable_query(), packed.mutable_key(), packed.mutable_value(), &answer}) {
    pack(tensor);
  }
  for (int64_t b = 0; b < kBatch; ++b) packed.add_query_lengths(kTokens);
  const auto result = CheckExactly(packed, answer, kPlenty, &problem);
  ASSERT_TRUE(result.has_value()) << problem;
  EXPECT_EQ(result->relative_error, expected->relative_error);
  EXPECT_EQ(result->rows_checked, kBatch * kTokens * kHeads);
}

TEST(CheckExactly, ABudgetThinsTheRowsOutOverAllHeads) {
  constexpr int64_t kTokens = 200, kHeads = 4, kDim = 8;
  v1::AttendRequest request;
  const std::vector<float> ones(kTokens * kHeads * kDim, 1);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = client::MakeTensor(ones, {kTokens, kHeads, kDim});
  }
  std::string problem;
  constexpr int64_t kRow = kTokens * 2 * kDim;  // multiply-adds of one row
  // A wrong head must be noticed even if only a few of its rows are checked.
  for (int64_t wrong = 0; wrong < kHeads; ++wrong) {
    std::vector<float> values = ones;
    for (int64_t i = 0; i < kTokens; ++i) values[(i * kHeads + wrong) * kDim] = 2;
    const auto result = CheckExactly(request, client::MakeTensor(values, {kTokens, kHeads, kDim}),
                                     100 * kRow, &problem);
    ASSERT_TRUE(result.has_value()) << problem;
    EXPECT_LE(result->rows_checked, 100);
    EXPECT_GE(result->rows_checked, 50);
    EXPECT_GT(result->relative_error, 0.05) << wrong;
  }
  EXPECT_EQ(CheckExactly(request, client::MakeTensor(ones, {kTokens, kHeads, kDim}), 1, &problem)
                ->rows_checked,
            1);
}

TEST(FitText, CutsBetweenCharactersAndKeepsOneLine) {
  EXPECT_EQ(FitText("short", 10), "short");
  EXPECT_EQ(FitText("a\nb\tc", 10), "a b c");
  EXPECT_EQ(FitText("abcdef", 4), "abc…");
  EXPECT_EQ(FitText("äöüß", 4), "äöüß");
  EXPECT_EQ(FitText("äöüßx", 4), "äöü…");
  EXPECT_EQ(FitText(std::string(100, '\xff'), 4).size(), 3u * 3 + 3u) << "bytes that are no UTF-8";
}

TEST(FormatTable, AlignsCharactersNotBytesAndKeepsCellsOnTheirLine) {
  EXPECT_EQ(FormatTable({{"ä", "1"}, {"bb", "2"}}), "ä   1\nbb  2\n");
  EXPECT_EQ(FormatTable({{"世", "1"}, {"b\nc", "\x1b[2J"}}), "世   1\nb c  \ufffd[2J\n");
}

}  // namespace
}  // namespace castor::cli
