// Models with heads from a client's bytes to its answer: a whole server over the real engine,
// compared with what transformers and sentence-transformers compute
// (tests/golden/encoder/make_heads.py), and for CAST with the paper's definition (make_cast.py).
// parity_test.cc has every head.

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/golden_models.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using nlohmann::json;

class ServerHeadsTest : public ServerTest {
 protected:
  void SetUp() override {
    StartReal(GoldenModels({"heads/bert_sequences", "heads/bert_tokens", "heads/splade_bert",
                            "heads/dense", "heads/colbert_pylate", "cast/top_k",
                            "directories/distilbert-router"}));
  }

  static std::vector<json> CasesOf(const std::string& model) {
    return json::parse(std::ifstream(kGolden + model + "/expected.json"))["cases"];
  }
};

// The cases that share a request: those of pairs where there are any.
std::vector<json> OfOneRequest(std::vector<json> cases) {
  const bool pairs =
      std::ranges::any_of(cases, [](const json& one) { return !one["pair"].is_null(); });
  std::erase_if(cases, [&](const json& one) {
    return one["text"].is_null() || (pairs && one["pair"].is_null());
  });
  return cases;
}

TEST_F(ServerHeadsTest, AnswerAsTheLibrariesWithTheirLabels) {
  const struct {
    const char* model;
    v1::EncodeOutput output;
    const char* expected;
    int labels = 0;
  } kCases[] = {{"heads/bert_sequences", v1::ENCODE_OUTPUT_DEFAULT, "SCORES", 3},
                {"heads/bert_sequences", v1::LOGITS, "LOGITS", 3},
                {"heads/bert_tokens", v1::SCORES, "SCORES", 5},
                {"heads/dense", v1::POOLED, "POOLED"},
                {"heads/colbert_pylate", v1::ENCODE_OUTPUT_DEFAULT, "TOKEN_EMBEDDINGS"},
                {"cast/top_k", v1::ENCODE_OUTPUT_DEFAULT, "SCORES", 3}};
  for (const auto& it : kCases) {
    SCOPED_TRACE(it.model);
    v1::EncodeRequest request;
    request.set_model(it.model);
    request.set_output(it.output);
    std::vector<float> expected;
    std::vector<int64_t> lengths;
    for (const json& one : OfOneRequest(CasesOf(it.model))) {
      v1::TextBatch& texts = *request.mutable_texts();
      texts.add_texts(one["text"].get<std::string>());
      if (!one["pair"].is_null()) texts.add_pairs(one["pair"].get<std::string>());
      const json& rows = one[it.expected];
      lengths.push_back(std::ssize(rows));
      for (const json& row : rows) expected.insert(expected.end(), row.begin(), row.end());
    }
    const v1::EncodeResponse response = Encode(request);
    EXPECT_THAT(response.lengths(), ::testing::ElementsAreArray(lengths));
    EXPECT_THAT(FloatsOf(response.output()),
                ::testing::Pointwise(::testing::FloatNear(2e-5F), expected));
    EXPECT_EQ(response.labels_size(), it.labels);
    const v1::Model model = DescribeModel(it.model);
    EXPECT_EQ(model.labels_size(), it.labels);
    EXPECT_EQ(model.token_labels(), it.labels == 5);
    EXPECT_EQ(response.kernel().has_cast(), model.family() == "castor_cast");
    if (it.output != v1::LOGITS) continue;
    EXPECT_EQ(response.labels(1), "\u00fcber");
    request.set_output(v1::POOLED);
    EXPECT_EQ(Encode(request).labels_size(), 0);
  }
  const v1::Model dense = DescribeModel("heads/dense"), cast = DescribeModel("cast/top_k");
  EXPECT_EQ(dense.hidden_size(), 8);
  EXPECT_EQ(dense.body_size(), 16);
  EXPECT_THAT(cast.kernels(), ::testing::ElementsAre(v1::CAST));
  EXPECT_EQ(cast.outputs(0), v1::SCORES);
}

// Queries come from a table, documents from the model, side by side on one stream.
TEST_F(ServerHeadsTest, ARouterLooksUpQueries) {
  const std::string model = "directories/distilbert-router";
  const std::vector<json> cases = CasesOf(model);
  ASSERT_EQ(cases.size(), 3U);  // by task: "query", "document", none
  v1::EncodeRequest plain;
  plain.set_model(model);
  plain.mutable_texts()->add_texts(cases[0]["text"].get<std::string>());
  struct Asked {
    v1::EncodeRequest request;
    const json& expected;
  };
  std::vector<Asked> asked;
  const auto ask = [&](const json& expected, auto&& set) {
    set(asked.emplace_back(plain, expected).request);
  };
  for (int round = 0; round < 20; ++round) {
    for (const json* const expected : {&cases[0], &cases[1]}) {
      const std::string task = (*expected)["task"];
      const std::string prompt = task == "query" ? "the river: " : "mill ";
      ask(*expected, [&](auto& request) { request.set_prompt_name(task); });
      ask(*expected, [&](auto& request) { request.set_task(task); });
      ask(*expected, [&](auto& request) {
        request.set_task(task);
        request.set_prompt(prompt);
      });
    }
    ask(cases[2], [](auto&) {});
    ask(cases[2], [](auto& request) { request.set_prompt_name(""); });
  }
  grpc::ClientContext context;
  auto stream = encoder_->EncodeStream(&context);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].request.set_request_id(std::to_string(i));
    ASSERT_TRUE(stream->Write(asked[i].request));
  }
  stream->WritesDone();
  size_t answers = 0;
  for (v1::EncodeResponse response; stream->Read(&response); ++answers) {
    SCOPED_TRACE(response.request_id());
    ASSERT_FALSE(response.has_error()) << response.error().message();
    const json& expected = asked[std::stoul(response.request_id())].expected;
    EXPECT_EQ(response.token_counts(0), std::ssize(expected["ids"]));
    EXPECT_EQ(response.model(), model);
    std::vector<double> row(expected["SPARSE"][0].size());
    const v1::SparseRows& sparse = response.sparse();
    EXPECT_THAT(sparse.lengths(), ::testing::ElementsAre(sparse.values_size()));
    EXPECT_FALSE(response.has_output());
    for (int i = 0; i < sparse.indices_size(); ++i) {
      EXPECT_GT(sparse.indices(i), i > 0 ? sparse.indices(i - 1) : -1);
      EXPECT_GT(sparse.values(i), 0);
      row.at(static_cast<size_t>(sparse.indices(i))) = sparse.values(i);
    }
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected["SPARSE"][0][i], 2e-5);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answers, asked.size());
  const v1::Model described = DescribeModel(model);
  EXPECT_EQ(described.similarity_fn_name(), "dot");
  EXPECT_THAT(described.tasks(), ::testing::ElementsAre("document", "query"));
  plain.set_task("nonsense");
  EXPECT_THAT(Try(plain).error_message(),
              ::testing::HasSubstr("task: is not a task of this model"));
  plain.set_task("query");
  plain.set_output(v1::POOLED);
  EXPECT_THAT(Try(plain).error_message(), ::testing::HasSubstr("has no POOLED; it has SPARSE"));
}

// Only numbers can be compared with zero. Embeddings near float32's end overflow on the way.
TEST_F(ServerHeadsTest, SparseRowsHoldNumbersOrAreRefused) {
  const int64_t hidden = DescribeModel("heads/splade_bert").hidden_size();
  v1::EncodeRequest request;
  request.set_model("heads/splade_bert");
  request.set_check_finite(false);
  v1::EmbeddingBatch& embeddings = *request.mutable_embeddings();
  for (const int64_t length : {3, 2}) embeddings.add_lengths(length);
  embeddings.mutable_values()->set_dtype(v1::FLOAT32);
  for (const int64_t size : {int64_t{5}, hidden}) embeddings.mutable_values()->add_shape(size);
  std::vector<float> values(static_cast<size_t>(5 * hidden), 0.1F);
  const auto with_last = [&](float value) {
    std::fill(values.end() - hidden, values.end(), value);
    request.mutable_embeddings()->mutable_values()->set_raw(values.data(),
                                                            values.size() * sizeof(float));
    return request;
  };
  EXPECT_EQ(Encode(with_last(0.1F)).sparse().lengths_size(), 2);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38F}) {
    const grpc::Status refused = Try(with_last(bad));
    EXPECT_EQ(Outcome(refused), "INVALID_ARGUMENT NON_FINITE_INPUT embeddings.values");
    EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("row 1"));
    request.set_output(v1::POOLED);  // which can hold them
    EXPECT_TRUE(Encode(request).has_output());
    request.set_output(v1::SPARSE);
  }
}

}  // namespace
}  // namespace castor::testing
