// Rerank from a client's bytes to its answer: cross-encoders, language models that judge, and late
// interaction, on a whole server over the real engine.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/golden_models.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using nlohmann::json;

class ServerRerankTest : public ServerTest {
 protected:
  void SetUp() override {
    StartReal(GoldenModels({"heads/cross_encoder", "heads/colbert_pylate",
                            "directories/qwen3-rerank", "rerankers/qwen3", "heads/dense",
                            "heads/bert_sequences", "heads/bert_tokens"}));
  }
};

// Documents score the same bits as pairs that are encoded. server_adapters_test.cc has the sums of
// late interaction.
TEST_F(ServerRerankTest, SortsDocuments) {
  for (const std::string model :
       {"heads/cross_encoder", "directories/qwen3-rerank", "heads/colbert_pylate"}) {
    SCOPED_TRACE(model);
    v1::RerankRequest request;
    request.set_model(model);
    request.set_request_id("id");
    request.set_query("who builds a dam?");
    for (const char* text : {"a beaver", "", "interest rates", "a beaver", "the dam of a beaver"}) {
      request.add_documents(text);
    }
    std::vector<float> logits, scores;
    if (model != "heads/colbert_pylate") {
      v1::EncodeRequest pairs;
      pairs.set_model(model);
      for (const std::string& document : request.documents()) {
        pairs.mutable_texts()->add_texts(request.query());
        pairs.mutable_texts()->add_pairs(document);
      }
      pairs.add_outputs(v1::LOGITS);
      pairs.add_outputs(v1::SCORES);
      const v1::EncodeResponse encoded = Encode(pairs);
      logits = FloatsOf(encoded.outputs(0).values());
      scores = FloatsOf(encoded.outputs(1).values());
    }
    const v1::RerankResponse all = Rerank(request);
    ASSERT_EQ(all.results_size(), 5);
    EXPECT_EQ(all.request_id(), "id");
    EXPECT_EQ(all.model(), model);
    EXPECT_EQ(all.token_counts_size(), 5);
    EXPECT_EQ(all.truncated_size(), 5);
    EXPECT_GT(all.timing().total_us(), 0);
    for (int i = 0; i < 5; ++i) {
      const v1::RankedDocument& row = all.results(i);
      EXPECT_EQ(row.logit(), logits.empty() ? row.score() : logits[row.index()]);
      EXPECT_EQ(row.score(), scores.empty() ? row.logit() : scores[row.index()]);
      EXPECT_EQ(row.document(), "");
      if (i == 0) continue;
      EXPECT_LE(row.logit(), all.results(i - 1).logit());
      // Documents 0 and 3 are the same text.
      if (row.logit() == all.results(i - 1).logit()) {
        EXPECT_GT(row.index(), all.results(i - 1).index());
      }
    }
    request.set_top_n(2);
    request.set_return_documents(true);
    const v1::RerankResponse best = Rerank(request);
    ASSERT_EQ(best.results_size(), 2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(best.results(i).index(), all.results(i).index());
      EXPECT_EQ(best.results(i).document(), request.documents(best.results(i).index()));
    }
    request.set_top_n(INT32_MAX);
    EXPECT_EQ(Rerank(request).results_size(), 5);
  }
}

TEST_F(ServerRerankTest, TakesAnInstruction) {
  std::ifstream file(kGolden + "rerankers/qwen3/variants.json");
  const json variants = json::parse(file)["variants"];
  for (const json& expected : variants[0]["cases"]) {
    v1::RerankRequest request;
    request.set_model("rerankers/qwen3");
    request.set_query(expected["query"]);
    request.add_documents(expected["document"]);
    request.set_allow_special_tokens(true);
    if (!expected["instruction"].is_null()) request.set_instruction(expected["instruction"]);
    const v1::RerankResponse response = Rerank(request);
    ASSERT_EQ(response.results_size(), 1);
    EXPECT_NEAR(response.results(0).logit(), expected["logit"].get<float>(), 2e-5);
    EXPECT_EQ(response.token_counts(0), expected["ids"].size());
  }
  EXPECT_TRUE(DescribeModel("rerankers/qwen3").takes_instruction());
  EXPECT_FALSE(DescribeModel("heads/cross_encoder").takes_instruction());

  v1::RerankRequest request;
  request.set_query("the mill");
  request.add_documents("the river");
  request.set_instruction("Find passages");
  const auto refusal = [&](const char* model) {
    request.set_model(model);
    return Outcome(Try(request));
  };
  const std::string refused = "INVALID_ARGUMENT INVALID_FIELD instruction";
  for (const char* model :
       {"heads/cross_encoder", "heads/colbert_pylate", "directories/qwen3-rerank"}) {
    EXPECT_EQ(refusal(model), refused) << model;
  }
  request.set_prompt("");
  EXPECT_EQ(refusal("rerankers/qwen3"), refused);
}

TEST_F(ServerRerankTest, NamesItsOwnFields) {
  v1::RerankRequest good;
  good.set_model("heads/cross_encoder");
  good.set_query("q");
  good.add_documents("d");
  const auto refusal = [&](auto change) {
    v1::RerankRequest request = good;
    change(&request);
    return Outcome(Try(request));
  };
  using R = v1::RerankRequest;
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  EXPECT_EQ(refusal([](R* r) { r->clear_documents(); }), invalid + "documents");
  EXPECT_EQ(refusal([](R* r) {
              for (int i = 0; i < 4096; ++i) r->add_documents("");
            }),
            invalid + "documents");
  EXPECT_EQ(refusal([](R* r) { r->set_top_n(-1); }), invalid + "top_n");
  EXPECT_EQ(refusal([](R* r) { r->set_query(std::string(2 << 20, 'a')); }), invalid + "query");
  EXPECT_EQ(refusal([](R* r) { r->add_documents(std::string(2 << 20, 'a')); }),
            invalid + "documents[1]");
  EXPECT_EQ(refusal([](R* r) {
              r->add_documents(std::string(4000, ' ') + "a b c d e f g h i j k l m n o p q r s");
              r->set_max_tokens(8);
              r->set_truncate(false);
            }),
            invalid + "documents[1]");
  EXPECT_EQ(refusal([](R* r) { r->set_priority(static_cast<v1::Priority>(9)); }),
            invalid + "priority");
  EXPECT_EQ(refusal([](R* r) { r->set_model("heads/dense"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("heads/bert_sequences"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("heads/bert_tokens"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("nobody"); }), "NOT_FOUND MODEL_NOT_FOUND");
  const auto late = [&](auto change) {
    return refusal([&](R* r) {
      r->set_model("heads/colbert_pylate");
      change(r);
    });
  };
  // The query is none of the 4,096 that are allowed.
  const auto fill = [](R* r) {
    while (r->documents_size() < 4096) r->add_documents("");
  };
  EXPECT_EQ(late(fill), "OK");
  EXPECT_EQ(late([](R* r) { r->set_prompt_name("query"); }), invalid + "prompt_name");
  EXPECT_EQ(late([&](R* r) {
              fill(r);
              r->add_documents("");
            }),
            invalid + "documents");
  EXPECT_EQ(late([](R* r) { r->set_query(std::string(2 << 20, 'a')); }), invalid + "query");
  EXPECT_EQ(late([](R* r) { r->add_documents(std::string(2 << 20, 'a')); }),
            invalid + "documents[1]");
}

}  // namespace
}  // namespace castor::testing
