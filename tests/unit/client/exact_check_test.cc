#include "client/cli/attend/exact_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "client/cli/report.h"
#include "client/tensor.h"

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

v1::AttendResponse Answer(const std::vector<double>& values, std::vector<int64_t> shape) {
  v1::AttendResponse answer;
  *answer.mutable_output() =
      client::MakeTensor(std::vector<float>(values.begin(), values.end()), shape);
  return answer;
}

v1::AttendResponse SmallAnswer() {
  return Answer({10 * kWeight + 20 * (1 - kWeight), 10 * (1 - kWeight) + 20 * kWeight, 30},
                {3, 1, 1});
}

TEST(CheckExactly, SeesThatAnAnswerIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CheckExactly(SmallRequest(), Answer({1, nan, 30}, {3, 1, 1}), kPlenty).finite);
}

// Two heads that share one of keys and values; under a causal mask, the first query sees no key.
TEST(CheckExactly, ReadsSharedHeadsAndHiddenKeys) {
  v1::AttendRequest request;
  *request.mutable_query() = client::MakeTensor(std::vector<float>{1, 0, 0, 1}, {1, 2, 2});
  *request.mutable_key() = client::MakeTensor(std::vector<float>{1, 0, 0, 1}, {2, 1, 2});
  *request.mutable_value() = client::MakeTensor(std::vector<float>{1, 0}, {2, 1, 1});
  request.add_query_lengths(1);
  request.add_key_lengths(2);
  request.set_softmax_scale(1);
  const auto error = [&](double first, double second) {
    return CheckExactly(request, Answer({first, second}, {1, 2, 1}), kPlenty).relative_error;
  };
  EXPECT_LT(error(kWeight, 1 - kWeight), 1e-6);
  EXPECT_GT(error(kWeight, kWeight), 0.1);

  v1::AttendRequest hidden = SmallRequest();
  hidden.mutable_vanilla()->set_causal(true);
  for (const int64_t length : {1, 2}) hidden.add_key_lengths(length);
  EXPECT_LT(CheckExactly(hidden, Answer({0, 10, 30}, {3, 1, 1}), kPlenty).relative_error, 1e-6);
}

TEST(FindMismatch, NamesWhatDoesNotFit) {
  const v1::AttendRequest good = SmallRequest();
  EXPECT_EQ(FindMismatch(good, SmallAnswer()), "");
  EXPECT_THAT(FindMismatch(good, Answer(std::vector<double>(6), {3, 1, 2})),
              HasSubstr("[3, 1, 2]"));
  EXPECT_THAT(FindMismatch(good, v1::AttendResponse()), HasSubstr("output is []"));
  v1::AttendResponse answer = SmallAnswer();
  answer.mutable_output()->set_dtype(v1::FLOAT16);
  EXPECT_THAT(FindMismatch(good, answer), HasSubstr("FLOAT16"));
  answer = SmallAnswer();
  answer.mutable_output()->mutable_raw()->resize(8);
  EXPECT_THAT(FindMismatch(good, answer), HasSubstr("output has 8 bytes"));
  // An honest server refuses such a request.
  v1::AttendRequest bad = good;
  bad.add_key_lengths(3);
  EXPECT_THAT(FindMismatch(bad, SmallAnswer()), HasSubstr("key_lengths"));
  bad.clear_query();
  EXPECT_THAT(FindMismatch(bad, SmallAnswer()), HasSubstr("no dimensions"));
}

TEST(CheckExactly, ABudgetThinsTheRowsOutOverAllHeads) {
  constexpr int64_t kTokens = 200, kHeads = 4, kDim = 8;
  v1::AttendRequest request;
  const std::vector<double> ones(kTokens * kHeads * kDim, 1);
  const v1::AttendResponse right = Answer(ones, {kTokens, kHeads, kDim});
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = right.output();
  }
  request.add_query_lengths(kTokens);
  constexpr int64_t kRow = kTokens * 2 * kDim;  // multiply-adds of one row
  // A wrong head must be noticed even if only a few of its rows are checked.
  for (int64_t wrong = 0; wrong < kHeads; ++wrong) {
    std::vector<double> values = ones;
    for (int64_t i = 0; i < kTokens; ++i) values[(i * kHeads + wrong) * kDim] = 2;
    const CheckResult result =
        CheckExactly(request, Answer(values, {kTokens, kHeads, kDim}), 100 * kRow);
    EXPECT_LE(result.rows_checked, 100);
    EXPECT_GE(result.rows_checked, 50);
    EXPECT_GT(result.relative_error, 0.05) << wrong;
  }
  EXPECT_EQ(CheckExactly(request, right, 1).rows_checked, 1);
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
