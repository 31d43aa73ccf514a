#include "client/load/target/requests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "client/cli/command.h"
#include "client/load/target/gaussian.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

ClassSpec AttendClass(AttendSpec spec) {
  ClassSpec cls;
  cls.name = "attend";
  cls.call = std::move(spec);
  return cls;
}

TEST(RequestsTest, AnAttendHasTheShapesOfItsClass) {
  AttendSpec spec = {.lengths = UniformLength{3, 9},
                     .sequences = FixedLength{4},
                     .heads = 2,
                     .head_dim = 16,
                     .value_dim = 8,
                     .dtype = v1::FLOAT16};
  spec.kernel.kernel = "cast";
  const v1::AttendRequest request = MakeAttend(AttendClass(spec), 7);
  ASSERT_EQ(request.query_lengths_size(), 4);
  int64_t tokens = 0;
  for (const int64_t length : request.query_lengths()) {
    EXPECT_GE(length, 3);
    EXPECT_LE(length, 9);
    tokens += length;
  }
  EXPECT_EQ(client::ShapeOf(request.query()), (std::vector<int64_t>{tokens, 2, 16}));
  EXPECT_EQ(client::ShapeOf(request.key()), (std::vector<int64_t>{tokens, 2, 16}));
  EXPECT_EQ(client::ShapeOf(request.value()), (std::vector<int64_t>{tokens, 2, 8}));
  EXPECT_EQ(request.query().dtype(), v1::FLOAT16);
  EXPECT_EQ(client::ShapeOf(request.cast().surrogate_tokens()), (std::vector<int64_t>{16, 2, 16}));
  EXPECT_EQ(client::ShapeOf(request.cast().gate()), (std::vector<int64_t>{tokens}));
}

TEST(RequestsTest, EqualSeedsGiveEqualRequestsAndOthersDoNot) {
  const ClassSpec cls = AttendClass({});
  EXPECT_EQ(MakeAttend(cls, 1).SerializeAsString(), MakeAttend(cls, 1).SerializeAsString());
  EXPECT_NE(MakeAttend(cls, 1).SerializeAsString(), MakeAttend(cls, 2).SerializeAsString());
  ClassSpec texts;
  texts.call = EncodeSpec{};
  EXPECT_EQ(MakeEncode(texts, {}, 1).SerializeAsString(),
            MakeEncode(texts, {}, 1).SerializeAsString());
  EXPECT_NE(MakeEncode(texts, {}, 1).SerializeAsString(),
            MakeEncode(texts, {}, 2).SerializeAsString());
}

TEST(RequestsTest, WhatDoesNotFitAMessageIsRefusedBeforeItIsAllocated) {
  EXPECT_THROW(MakeAttend(AttendClass({.lengths = FixedLength{int64_t{1} << 40}}), 1),
               cli::UsageError);
}

TEST(RequestsTest, TextsHaveAsManyWordsAsTheirLength) {
  ClassSpec cls;
  cls.call = EncodeSpec{.lengths = FixedLength{5}, .sequences = FixedLength{3}};
  const v1::EncodeRequest request = MakeEncode(cls, {}, 3);
  ASSERT_EQ(request.texts().texts_size(), 3);
  for (const std::string& text : request.texts().texts()) {
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 4) << text;
  }
}

TEST(RequestsTest, TextsOfAFileAreTakenAsTheyStand) {
  ClassSpec cls;
  cls.call = EncodeSpec{.text_file = "given", .sequences = FixedLength{50}};
  std::set<std::string> seen;
  const v1::EncodeRequest request = MakeEncode(cls, {"one", "two"}, 3);
  for (const std::string& text : request.texts().texts()) seen.insert(text);
  EXPECT_EQ(seen, (std::set<std::string>{"one", "two"}));
}

TEST(GaussianTest, HasTheMomentsOfAStandardNormal) {
  Random random(1);
  std::vector<float> values(1 << 20);
  FillGaussian(values, random);
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 3, 0.1);
}

TEST(GaussianTest, StructuredRowsLieAroundFewCentres) {
  Random random(1);
  constexpr int64_t kWidth = 64, kRows = 400;
  std::vector<float> values(kWidth * kRows);
  FillStructured(values, kWidth, 4, random);
  // To its nearest other row, a row has the distance of two noises; between Gaussian rows there
  // would be some sqrt(2 * 64) = 11.
  for (int64_t row = 0; row < kRows; ++row) {
    double nearest = INFINITY;
    for (int64_t other = 0; other < kRows; ++other) {
      if (other == row) continue;
      double distance = 0;
      for (int64_t i = 0; i < kWidth; ++i) {
        const double d = values[row * kWidth + i] - values[other * kWidth + i];
        distance += d * d;
      }
      nearest = std::min(nearest, std::sqrt(distance));
    }
    EXPECT_LT(nearest, 6) << row;
  }
}

}  // namespace
}  // namespace castor::load
