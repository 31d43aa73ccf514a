// Reading and showing of the answers of `castor encode`.
#include "client/cli/encode/encode_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "client/tensor.h"

namespace castor::cli {
namespace {

using ::testing::HasSubstr;

#define EXPECT_OK(status) EXPECT_EQ((status).message(), "")
#define ASSERT_OK(status) ASSERT_EQ((status).message(), "")

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
  ASSERT_OK(answer.Append(
      AnswerOf({1, 1}, 3, {0.1F, 0.7F, 0.2F, 0.5F, 0.25F, 0.25F}, {"calm", "windy", "stormy"}),
      {"a breeze", "still"}));
  const std::string table = answer.Table(0);
  EXPECT_THAT(table, HasSubstr("windy 0.700, stormy 0.200, calm 0.100"));
  EXPECT_THAT(table, HasSubstr("calm 0.500, windy 0.250, stormy 0.250"));
  const Json json = answer.Reports(0);
  EXPECT_EQ(json["labels"], Json({"calm", "windy", "stormy"}));
  EXPECT_EQ(json["shape"], Json({2, 3}));
  EXPECT_EQ(answer.Sequences()[1]["rows"][0][0], 0.5);
}

TEST(EncodeAnswerTest, LabelsOfTokensAreShownInRuns) {
  EncodeAnswer answer;
  ASSERT_OK(
      answer.Append(AnswerOf({1, 4}, 2, {1, 0, 1, 0, 1, 0, 0, 1, 1, 0}, {"O", "LOC"}), {"a", "b"}));
  EXPECT_THAT(answer.Table(0), HasSubstr("O x2, LOC, O"));
  EXPECT_THAT(answer.Table(0), HasSubstr("one row per token"));
  EXPECT_EQ(answer.Sequences()[1]["rows"].size(), 4U);
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
    ASSERT_OK(answer.Append(response, {"first", "second"}));
  }
  EXPECT_TRUE(answer.sparse());
  EXPECT_THAT(answer.Table(0), HasSubstr("2: 7 2.000, 3 0.500"));
  EXPECT_THAT(answer.Table(0), HasSubstr("4 sparse rows, 6 values"));
  const Json json = answer.Reports(0);
  EXPECT_EQ(answer.Sequences()[3]["indices"], Json({9}));
  EXPECT_EQ(answer.Sequences()[2]["values"], Json({0.5, 2.0}));
  EXPECT_FALSE(json.contains("shape"));
}

// The objection to an answer for two sequences, "a" and "b", or for one with spans.
std::string RefusalOf(const v1::EncodeResponse& response,
                      const std::vector<std::string>& spans = {}) {
  EncodeAnswer answer;
  std::vector<std::string> inputs = {"a", "b"};
  if (!spans.empty()) inputs.pop_back();
  return std::string(answer.Append(response, inputs, spans).message());
}

TEST(EncodeAnswerTest, EveryCountIsChecked) {
  const std::vector<float> values = {1, 2, 3, 4};
  const auto after = [&](auto change) {
    v1::EncodeResponse response = AnswerOf({1, 1}, 2, values);
    change(response);
    return RefusalOf(response);
  };
  using R = v1::EncodeResponse;
  EXPECT_EQ(after([](R&) {}), "");
  EXPECT_THAT(after([](R& r) { r.add_token_counts(1); }), HasSubstr("token_counts has 3"));
  EXPECT_THAT(after([](R& r) { r.set_token_counts(0, INT64_MAX); }), HasSubstr("token_counts"));
  EXPECT_THAT(after([](R& r) { r.set_token_counts(0, -1); }), HasSubstr("token_counts"));
  EXPECT_THAT(after([](R& r) { r.clear_truncated(); }), HasSubstr("truncated has 0"));
  EXPECT_THAT(after([](R& r) { r.add_spans(); }), HasSubstr("spans has 1"));
  EXPECT_THAT(after([](R& r) { r.add_lengths(0); }), HasSubstr("lengths has 3"));
  EXPECT_THAT(after([](R& r) { r.set_lengths(1, 2); }), HasSubstr("lengths holds 2"));
  EXPECT_THAT(after([](R& r) { r.set_lengths(1, -1); }), HasSubstr("lengths holds -1"));
  EXPECT_THAT(after([](R& r) { r.set_lengths(1, 0); }), HasSubstr("lengths leaves out 1 of 2"));
  EXPECT_THAT(after([](R& r) { r.add_labels("one"); }), HasSubstr("labels has 1"));
  EXPECT_THAT(after([](R& r) { r.clear_output(); }), HasSubstr("output"));
  EXPECT_THAT(after([](R& r) { r.mutable_output()->set_shape(0, 1'000'000); }),
              HasSubstr("output is not a complete tensor"));
  EXPECT_THAT(after([](R& r) { r.mutable_output()->add_shape(1); }), HasSubstr("output.shape"));
  // Countless rows of no bytes.
  EXPECT_THAT(after([](R& r) {
                r.mutable_output()->clear_raw();
                r.mutable_output()->set_shape(0, int64_t{1} << 40);
                r.mutable_output()->set_shape(1, 0);
                r.set_lengths(0, int64_t{1} << 40);
                r.set_lengths(1, 0);
              }),
              HasSubstr("output.shape"));
}

TEST(EncodeAnswerTest, CountsOfSpansAndSparseRowsAreChecked) {
  const auto of_spans = [](auto change) {
    v1::EncodeResponse response = AnswerOf({2}, 1, {1, 2});
    for (int i = 0; i < 2; ++i) response.add_spans()->set_end(3);
    change(response);
    return RefusalOf(response, {"first", "second"});
  };
  using R = v1::EncodeResponse;
  EXPECT_EQ(of_spans([](R&) {}), "");
  EXPECT_THAT(of_spans([](R& r) { r.mutable_spans()->RemoveLast(); }), HasSubstr("spans has 1"));
  EXPECT_THAT(of_spans([](R& r) { r.mutable_spans(0)->set_begin(INT64_MIN); }),
              HasSubstr("spans holds"));
  EXPECT_THAT(of_spans([](R& r) { r.add_labels("one"); }), HasSubstr("labels"));
  EXPECT_THAT(of_spans([](R& r) { r.mutable_sparse(); }), HasSubstr("sparse"));
  EXPECT_THAT(of_spans([](R& r) {
                *r.mutable_output() = client::MakeTensor(std::vector<float>{1, 2, 3}, {3, 1});
                r.set_lengths(0, 3);
              }),
              HasSubstr("for 2 spans"));

  v1::EncodeResponse sparse = AnswerOf({1, 1}, 2, {1, 2, 3, 4});
  sparse.mutable_sparse()->add_indices(1);
  EXPECT_THAT(RefusalOf(sparse), HasSubstr("sparse.indices has 1"));
  sparse.mutable_sparse()->add_values(1);
  sparse.mutable_sparse()->add_lengths(2);
  EXPECT_THAT(RefusalOf(sparse), HasSubstr("sparse.lengths has 1"));
  sparse.mutable_sparse()->add_lengths(0);
  EXPECT_THAT(RefusalOf(sparse), HasSubstr("sparse.lengths holds 2"));
  sparse.mutable_sparse()->set_lengths(0, 1);
  EXPECT_EQ(RefusalOf(sparse), "");
}

TEST(EncodeAnswerTest, AnswersThatDifferAreNotJoined) {
  const auto joined = [](const v1::EncodeResponse& first, const v1::EncodeResponse& second) {
    EncodeAnswer answer;
    EXPECT_OK(answer.Append(first, {"a"}));
    return std::string(answer.Append(second, {"a"}).message());
  };
  const v1::EncodeResponse one = AnswerOf({1}, 1, {1});
  v1::EncodeResponse sparse = one;
  sparse.mutable_sparse()->add_lengths(0);
  EXPECT_EQ(joined(one, one), "");
  EXPECT_THAT(joined(one, sparse), HasSubstr("sparse"));
  EXPECT_THAT(joined(one, AnswerOf({1}, 2, {1, 2})), HasSubstr("a width of 1"));
  EXPECT_THAT(joined(one, AnswerOf({1}, 1, {1}, {"label"})), HasSubstr("labels"));
}

TEST(EncodeAnswerTest, TruncationIsCounted) {
  EncodeAnswer whole;
  ASSERT_OK(whole.Append(AnswerOf({1, 1}, 1, {1, 2}), {"a", "b"}));
  EXPECT_EQ(whole.TruncationText(), "");
  v1::EncodeResponse response = AnswerOf({1, 1}, 1, {1, 2});
  response.set_truncated(1, true);
  EncodeAnswer cut;
  ASSERT_OK(cut.Append(response, {"a", "b"}));
  EXPECT_EQ(cut.TruncationText(), "1 of 2 inputs");
  EncodeAnswer spans;
  response = AnswerOf({2}, 1, {1, 2});
  response.set_truncated(0, true);
  response.add_spans()->set_truncated(true);
  response.add_spans();
  ASSERT_OK(spans.Append(response, {"a"}, {"first", "second"}));
  EXPECT_EQ(spans.TruncationText(), "1 of 1 inputs and 1 of 2 spans");
}

TEST(EncodeAnswerTest, DiscardedRowsAreStillCounted) {
  EncodeAnswer kept, forgetful;
  v1::EncodeResponse response = AnswerOf({1, 1}, 2, {1, 2, 3, 4});
  response.set_truncated(1, true);
  for (int i = 0; i < 11; ++i) {
    ASSERT_OK(kept.Append(response, {"a", "b"}));
    ASSERT_OK(forgetful.Append(response, {"a", "b"}));
    EXPECT_EQ(forgetful.Sequences().size(), 2U);
    EXPECT_EQ(forgetful.values(), std::vector<float>({1, 2, 3, 4}));
    EXPECT_EQ(kept.ShowsRows(), i < 10);
    forgetful.DiscardRows();
  }
  EXPECT_EQ(forgetful.values().size(), 0U);
  EXPECT_EQ(forgetful.Table(0), kept.Table(0));
  EXPECT_EQ(forgetful.Reports(0), kept.Reports(0));
  EXPECT_EQ(forgetful.TruncationText(), "11 of 22 inputs");
}

TEST(EncodeAnswerTest, NanAndControlCharactersDoNoHarm) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  v1::EncodeResponse response =
      AnswerOf({1}, 3, {nan, 2, nan}, {"\x1b[31mred", "b\u009b2J", "c\nd"});
  response.set_model("evil\n\u202e");
  EncodeAnswer answer;
  ASSERT_OK(answer.Append(response, {"input"}));
  const std::string table = answer.Table(0);
  EXPECT_THAT(table, HasSubstr("b\ufffd2J 2.000, \ufffd[31mred nan, c d nan"));
  EXPECT_THAT(table, HasSubstr("evil \ufffd\n"));
  const std::string json = JsonText(answer.Reports(0));
  EXPECT_THAT(json, HasSubstr("\\u001b[31mred"));
  EXPECT_THAT(json, HasSubstr("b\\u009b2J"));
  EXPECT_THAT(json, HasSubstr("evil\\n\\u202e"));
  EXPECT_EQ(Json::parse(json)["labels"][1], "b\u009b2J");
}

}  // namespace
}  // namespace castor::cli
