// How the answers of `castor encode` are read.
#include "client/cli/encode_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/tensor.h"

namespace castor::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::EncodeResponse AnswerOf(const std::vector<int64_t>& lengths, int64_t width,
                            const std::vector<float>& values,
                            const std::vector<std::string>& labels = {}) {
  v1::EncodeResponse response;
  *response.mutable_output() =
      client::MakeTensor(values, {static_cast<int64_t>(values.size()) / width, width});
  for (const int64_t length : lengths) {
    response.add_lengths(length);
    response.add_token_counts(7);
    response.add_truncated(false);
  }
  for (const std::string& label : labels) response.add_labels(label);
  return response;
}

TEST(EncodeAnswerTest, ScoresAreShownWithTheirLabelsGreatestFirst) {
  EncodeAnswer answer;
  ASSERT_TRUE(answer.Append(
      AnswerOf({1, 1}, 3, {0.1F, 0.7F, 0.2F, 0.5F, 0.25F, 0.25F}, {"calm", "windy", "stormy"}),
      {"a breeze", "still"}));
  const std::string table = answer.Table(0);
  EXPECT_THAT(table, HasSubstr("windy 0.700, stormy 0.200, calm 0.100"));
  EXPECT_THAT(table, HasSubstr("calm 0.500, windy 0.250, stormy 0.250"));
  const Json json = answer.ToJson(0);
  EXPECT_EQ(json["labels"], Json({"calm", "windy", "stormy"}));
  EXPECT_EQ(json["shape"], Json({2, 3}));
  EXPECT_EQ(json["sequences"][1]["rows"][0][0], 0.5);
}

TEST(EncodeAnswerTest, LabelsOfTokensAreShownInRuns) {
  EncodeAnswer answer;
  ASSERT_TRUE(
      answer.Append(AnswerOf({1, 4}, 2, {1, 0, 1, 0, 1, 0, 0, 1, 1, 0}, {"O", "LOC"}), {"a", "b"}));
  EXPECT_THAT(answer.Table(0), HasSubstr("O x2, LOC, O"));
  EXPECT_THAT(answer.Table(0), HasSubstr("one row per token"));
  EXPECT_EQ(answer.ToJson(0)["sequences"][1]["rows"].size(), 4U);
}

TEST(EncodeAnswerTest, SparseRowsAreShownByWeightAndJoinedOverRequests) {
  EncodeAnswer answer;
  for (int request = 0; request < 2; ++request) {
    v1::EncodeResponse response;
    for (const int index : {3, 7, 9}) response.mutable_sparse()->add_indices(index);
    for (const float value : {0.5F, 2.0F, 0.25F}) response.mutable_sparse()->add_values(value);
    for (const int64_t length : {2, 1}) {
      response.mutable_sparse()->add_lengths(length);
      response.add_lengths(1);
      response.add_token_counts(4);
      response.add_truncated(false);
    }
    ASSERT_TRUE(answer.Append(response, {"first", "second"}));
  }
  EXPECT_TRUE(answer.sparse());
  EXPECT_THAT(answer.Table(0), HasSubstr("2: 7 2.000, 3 0.500"));
  EXPECT_THAT(answer.Table(0), HasSubstr("4 sparse rows, 6 values"));
  const Json json = answer.ToJson(0);
  EXPECT_EQ(json["sequences"][3]["indices"], Json({9}));
  EXPECT_EQ(json["sequences"][2]["values"], Json({0.5, 2.0}));
  EXPECT_FALSE(json.contains("shape"));
}

TEST(EncodeAnswerTest, WhatDoesNotFitIsRefused) {
  const std::vector<float> values = {1, 2, 3, 4};
  EXPECT_TRUE(EncodeAnswer().Append(AnswerOf({1, 1}, 2, values), {"a", "b"}));
  EXPECT_FALSE(EncodeAnswer().Append(AnswerOf({1, 1}, 2, values), {"a"}));
  EXPECT_FALSE(EncodeAnswer().Append(AnswerOf({1, 2}, 2, values), {"a", "b"}));
  EXPECT_FALSE(EncodeAnswer().Append(AnswerOf({1, 1}, 2, values, {"one"}), {"a", "b"}));
  v1::EncodeResponse sparse = AnswerOf({1}, 1, {1});
  sparse.mutable_sparse()->add_indices(1);
  EXPECT_FALSE(EncodeAnswer().Append(sparse, {"a"}));
  sparse.mutable_sparse()->add_values(1);
  sparse.mutable_sparse()->add_lengths(2);
  EXPECT_FALSE(EncodeAnswer().Append(sparse, {"a"}));
  sparse.mutable_sparse()->set_lengths(0, 1);
  EXPECT_TRUE(EncodeAnswer().Append(sparse, {"a"}));
  EncodeAnswer mixed;
  EXPECT_TRUE(mixed.Append(AnswerOf({1}, 1, {1}), {"a"}));
  EXPECT_FALSE(mixed.Append(sparse, {"a"}));
}

}  // namespace
}  // namespace castor::cli
