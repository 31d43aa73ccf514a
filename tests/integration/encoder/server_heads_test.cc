// Models with heads, and Rerank, from a client's bytes to its answer: a whole server over the real
// engine, compared with what transformers and sentence-transformers compute
// (tests/golden/encoder/make_heads.py), and for CAST with the paper's definition (make_cast.py).

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "castor/v1/model.grpc.pb.h"
#include "engine/engine.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using nlohmann::json;

constexpr const char* kModels[] = {"bert_sequences", "bert_tokens",
                                   "cross_encoder",  "splade_bert",
                                   "dense",          "colbert_pylate",
                                   "cast_top_k",     "saved_qwen3-rerank",
                                   "judge_qwen3",    "saved_distilbert-router"};

// "cast_NAME" is cast/NAME, "saved_NAME" directories/NAME, "judge_NAME" rerankers/NAME.
std::string FolderOf(const std::string& model) {
  const std::string golden = CASTOR_GOLDEN_ENCODER;
  if (model.starts_with("saved_")) return golden + "/directories/" + model.substr(6);
  if (model.starts_with("judge_")) return golden + "/rerankers/" + model.substr(6);
  return golden + (model.starts_with("cast_") ? "/cast/" + model.substr(5) : "/heads/" + model);
}

class ServerHeadsTest : public ServerTest {
 protected:
  void SetUp() override {
    std::vector<ModelSource> models;
    for (const char* name : kModels) models.push_back({name, FolderOf(name)});
    StartReal(std::move(models));
  }

  static json CasesOf(const std::string& model) {
    std::ifstream file(FolderOf(model) + "/expected.json");
    return json::parse(file)["cases"];
  }

  v1::RerankResponse Rerank(const v1::RerankRequest& request) {
    grpc::ClientContext context;
    v1::RerankResponse response;
    const grpc::Status status = encoder_->Rerank(&context, request, &response);
    EXPECT_TRUE(status.ok()) << Outcome(status) << " " << status.error_message();
    return response;
  }

  std::string Refusal(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    return Outcome(status) + ": " + status.error_message();
  }

  v1::Model Describe(const std::string& name) {
    auto models = v1::ModelService::NewStub(channel_);
    grpc::ClientContext context;
    v1::GetModelRequest request;
    request.set_name(name);
    v1::Model model;
    EXPECT_TRUE(models->GetModel(&context, request, &model).ok());
    return model;
  }
};

std::vector<float> RowsOf(const v1::Tensor& tensor) {
  std::vector<float> rows(tensor.raw().size() / sizeof(float));
  std::memcpy(rows.data(), tensor.raw().data(), tensor.raw().size());
  return rows;
}

// One request with all cases that have an output of that name.
v1::EncodeRequest RequestFor(const std::string& model, const json& cases, v1::EncodeOutput output) {
  v1::EncodeRequest request;
  request.set_model(model);
  request.set_output(output);
  bool pairs = false;
  for (const json& one : cases) pairs = pairs || !one["pair"].is_null();
  for (const json& one : cases) {
    // A request has pairs or not, as a whole.
    if (one["text"].is_null() || (pairs && one["pair"].is_null())) continue;
    request.mutable_texts()->add_texts(one["text"].get<std::string>());
    if (pairs) request.mutable_texts()->add_pairs(one["pair"].get<std::string>());
  }
  return request;
}

void ExpectRows(const v1::EncodeResponse& response, const json& cases, const char* name) {
  std::vector<float> expected;
  bool pairs = false;
  for (const json& one : cases) pairs = pairs || !one["pair"].is_null();
  std::vector<int64_t> lengths;
  for (const json& one : cases) {
    if (one["text"].is_null() || (pairs && one["pair"].is_null())) continue;
    lengths.push_back(std::ssize(one[name]));
    for (const json& row : one[name]) expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(std::vector<int64_t>(response.lengths().begin(), response.lengths().end()), lengths);
  const std::vector<float> rows = RowsOf(response.output());
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], expected[i], 2e-5);
}

TEST_F(ServerHeadsTest, ClassifiersAnswerWithScoresAndTheirLabels) {
  const json cases = CasesOf("bert_sequences");
  // Scores are its own output.
  const v1::EncodeResponse scores =
      Encode(RequestFor("bert_sequences", cases, v1::ENCODE_OUTPUT_DEFAULT));
  ExpectRows(scores, cases, "SCORES");
  ASSERT_EQ(scores.labels_size(), 3);
  EXPECT_EQ(scores.labels(1), "\u00fcber");
  const v1::EncodeResponse logits = Encode(RequestFor("bert_sequences", cases, v1::LOGITS));
  ExpectRows(logits, cases, "LOGITS");
  EXPECT_EQ(logits.labels_size(), 3);
  const v1::EncodeResponse rows = Encode(RequestFor("bert_sequences", cases, v1::POOLED));
  EXPECT_EQ(rows.output().shape(1), 16);
  EXPECT_EQ(rows.labels_size(), 0);
}

TEST_F(ServerHeadsTest, TokensAreLabelled) {
  const json cases = CasesOf("bert_tokens");
  const v1::EncodeResponse scores = Encode(RequestFor("bert_tokens", cases, v1::SCORES));
  ExpectRows(scores, cases, "SCORES");
  EXPECT_EQ(scores.labels_size(), 5);
  EXPECT_GT(scores.lengths(0), 1);
  EXPECT_TRUE(Describe("bert_tokens").token_labels());
}

TEST_F(ServerHeadsTest, CrossEncodersScorePairs) {
  const json cases = CasesOf("cross_encoder");
  ExpectRows(Encode(RequestFor("cross_encoder", cases, v1::SCORES)), cases, "SCORES");
  ExpectRows(Encode(RequestFor("cross_encoder", cases, v1::LOGITS)), cases, "LOGITS");
}

// The same bits as pairs that are encoded; order, what is returned, and what is refused.
TEST_F(ServerHeadsTest, RerankSortsPairs) {
  for (const std::string model : {"cross_encoder", "saved_qwen3-rerank"}) {
    SCOPED_TRACE(model);
    v1::RerankRequest request;
    request.set_model(model);
    request.set_request_id("id");
    request.set_query("who builds a dam?");
    for (const char* text : {"a beaver", "", "interest rates", "a beaver", "the dam of a beaver"}) {
      request.add_documents(text);
    }
    v1::EncodeRequest pairs;
    pairs.set_model(model);
    for (const std::string& document : request.documents()) {
      pairs.mutable_texts()->add_texts(request.query());
      pairs.mutable_texts()->add_pairs(document);
    }
    pairs.add_outputs(v1::LOGITS);
    pairs.add_outputs(v1::SCORES);
    const v1::EncodeResponse encoded = Encode(pairs);
    const auto logits = RowsOf(encoded.outputs(0).values());
    const auto scores = RowsOf(encoded.outputs(1).values());
    const v1::RerankResponse all = Rerank(request);
    ASSERT_EQ(all.results_size(), 5);
    EXPECT_EQ(all.request_id(), "id");
    EXPECT_EQ(all.model(), model);
    EXPECT_EQ(all.token_counts_size(), 5);
    EXPECT_GT(all.timing().total_us(), 0);
    for (int i = 0; i < 5; ++i) {
      const v1::RankedDocument& row = all.results(i);
      EXPECT_EQ(row.logit(), logits[row.index()]);
      EXPECT_EQ(row.score(), scores[row.index()]);
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

// As PyLate's rank.rerank does with the rows that Encode gives.
TEST_F(ServerHeadsTest, RerankSumsGreatestProductsOfTokenRows) {
  v1::RerankRequest request;
  request.set_model("colbert_pylate");
  request.set_query("who builds a dam?");
  for (const char* text : {"interest", "a beaver builds a dam", "", "a beaver builds a dam"}) {
    request.add_documents(text);
  }
  request.set_return_documents(true);
  const auto rows_of = [&](const std::string& text, const char* prompt) {
    v1::EncodeRequest encode;
    encode.set_model(request.model());
    encode.mutable_texts()->add_texts(text);
    encode.set_prompt_name(prompt);
    return RowsOf(Encode(encode).output());
  };
  const size_t width = 6;
  const std::vector<float> query = rows_of(request.query(), "query");
  std::vector<double> expected;
  for (const std::string& text : request.documents()) {
    const std::vector<float> document = rows_of(text, "document");
    double sum = 0;
    for (size_t q = 0; q < query.size(); q += width) {
      double most = -INFINITY;
      for (size_t d = 0; d < document.size(); d += width) {
        double product = 0;
        for (size_t k = 0; k < width; ++k) product += query[q + k] * document[d + k];
        most = std::max(most, product);
      }
      sum += most;
    }
    expected.push_back(sum);
  }
  const v1::RerankResponse response = Rerank(request);
  ASSERT_EQ(response.results_size(), 4);
  EXPECT_EQ(response.token_counts_size(), 4);
  EXPECT_EQ(response.truncated_size(), 4);
  for (int i = 0; i < 4; ++i) {
    const v1::RankedDocument& row = response.results(i);
    EXPECT_NEAR(row.score(), expected[row.index()], 1e-4);
    EXPECT_EQ(row.score(), row.logit());
    EXPECT_EQ(row.document(), request.documents(row.index()));
    if (i > 0) {
      EXPECT_LE(row.score(), response.results(i - 1).score());
    }
  }
  request.set_prompt_name("query");
  grpc::ClientContext context;
  v1::RerankResponse refused;
  EXPECT_EQ(Outcome(encoder_->Rerank(&context, request, &refused)),
            "INVALID_ARGUMENT INVALID_FIELD prompt_name");
}

TEST_F(ServerHeadsTest, RerankTakesAnInstruction) {
  std::ifstream file(FolderOf("judge_qwen3") + "/variants.json");
  const json variants = json::parse(file)["variants"];
  for (const json& expected : variants[0]["cases"]) {
    v1::RerankRequest request;
    request.set_model("judge_qwen3");
    request.set_query(expected["query"]);
    request.add_documents(expected["document"]);
    request.set_allow_special_tokens(true);
    if (!expected["instruction"].is_null()) request.set_instruction(expected["instruction"]);
    const v1::RerankResponse response = Rerank(request);
    ASSERT_EQ(response.results_size(), 1);
    EXPECT_NEAR(response.results(0).logit(), expected["logit"].get<float>(), 2e-5);
    EXPECT_EQ(response.token_counts(0), expected["ids"].size());
  }
  EXPECT_TRUE(Describe("judge_qwen3").takes_instruction());
  EXPECT_FALSE(Describe("cross_encoder").takes_instruction());

  v1::RerankRequest request;
  request.set_query("the mill");
  request.add_documents("the river");
  request.set_instruction("Find passages");
  const auto refusal = [&](const char* model) {
    request.set_model(model);
    grpc::ClientContext context;
    v1::RerankResponse response;
    return Outcome(encoder_->Rerank(&context, request, &response));
  };
  const std::string refused = "INVALID_ARGUMENT INVALID_FIELD instruction";
  for (const char* model : {"cross_encoder", "colbert_pylate", "saved_qwen3-rerank"}) {
    EXPECT_EQ(refusal(model), refused) << model;
  }
  request.set_prompt("");
  EXPECT_EQ(refusal("judge_qwen3"), refused);
}

TEST_F(ServerHeadsTest, RerankNamesItsOwnFields) {
  v1::RerankRequest good;
  good.set_model("cross_encoder");
  good.set_query("q");
  good.add_documents("d");
  const auto refusal = [&](auto change) {
    v1::RerankRequest request = good;
    change(&request);
    grpc::ClientContext context;
    v1::RerankResponse response;
    const grpc::Status status = encoder_->Rerank(&context, request, &response);
    return Outcome(status);
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
  EXPECT_EQ(refusal([](R* r) { r->set_model("dense"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("bert_sequences"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("bert_tokens"); }), invalid + "model");
  EXPECT_EQ(refusal([](R* r) { r->set_model("nobody"); }), "NOT_FOUND MODEL_NOT_FOUND");
  const auto late = [&](auto change) {
    return refusal([&](R* r) {
      r->set_model("colbert_pylate");
      change(r);
    });
  };
  // The query is none of the 4,096 that are allowed.
  const auto fill = [](R* r) {
    while (r->documents_size() < 4096) r->add_documents("");
  };
  EXPECT_EQ(late(fill), "OK");
  EXPECT_EQ(late([&](R* r) {
              fill(r);
              r->add_documents("");
            }),
            invalid + "documents");
  EXPECT_EQ(late([](R* r) { r->set_query(std::string(2 << 20, 'a')); }), invalid + "query");
  EXPECT_EQ(late([](R* r) { r->add_documents(std::string(2 << 20, 'a')); }),
            invalid + "documents[1]");
}

TEST_F(ServerHeadsTest, DenseLayersAndProjectionsSetTheWidth) {
  const json dense = CasesOf("dense");
  ExpectRows(Encode(RequestFor("dense", dense, v1::POOLED)), dense, "POOLED");
  EXPECT_EQ(Describe("dense").hidden_size(), 8);
  EXPECT_EQ(Describe("dense").body_size(), 16);
  const json colbert = CasesOf("colbert_pylate");
  ExpectRows(Encode(RequestFor("colbert_pylate", colbert, v1::ENCODE_OUTPUT_DEFAULT)), colbert,
             "TOKEN_EMBEDDINGS");
  EXPECT_EQ(Describe("colbert_pylate").hidden_size(), 6);
}

TEST_F(ServerHeadsTest, SparseRowsHaveNoZeros) {
  const json cases = CasesOf("splade_bert");
  const v1::EncodeResponse response =
      Encode(RequestFor("splade_bert", cases, v1::ENCODE_OUTPUT_DEFAULT));
  EXPECT_FALSE(response.has_output());
  const v1::SparseRows& sparse = response.sparse();
  ASSERT_EQ(sparse.indices_size(), sparse.values_size());
  ASSERT_EQ(sparse.lengths_size(), std::ssize(cases));
  int at = 0;
  for (int row = 0; row < sparse.lengths_size(); ++row) {
    std::vector<float> dense(260, 0.0F);
    int before = -1;
    for (int64_t i = 0; i < sparse.lengths(row); ++i, ++at) {
      EXPECT_GT(sparse.indices(at), before);
      before = sparse.indices(at);
      ASSERT_LT(before, 260);
      EXPECT_GT(sparse.values(at), 0);
      dense[static_cast<size_t>(before)] = sparse.values(at);
    }
    const json& expected = cases[static_cast<size_t>(row)]["SPARSE"][0];
    for (size_t i = 0; i < dense.size(); ++i) {
      EXPECT_NEAR(dense[i], expected[i].get<double>(), 2e-5);
    }
  }
  EXPECT_EQ(at, sparse.indices_size());
  EXPECT_EQ(Describe("splade_bert").outputs(0), v1::SPARSE);
}

// Only numbers can be compared with zero. Embeddings near float32's end overflow on the way.
// Queries come from a table, documents from the model, side by side on one stream.
TEST_F(ServerHeadsTest, ARouterLooksUpQueries) {
  const std::string model = "saved_distilbert-router";
  const json cases = CasesOf(model);
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
    for (int i = 0; i < response.sparse().indices_size(); ++i) {
      row[static_cast<size_t>(response.sparse().indices(i))] = response.sparse().values(i);
    }
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected["SPARSE"][0][i], 2e-5);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answers, asked.size());
  const v1::Model described = Describe(model);
  EXPECT_EQ(described.similarity_fn_name(), "dot");
  EXPECT_EQ(std::vector<std::string>(described.tasks().begin(), described.tasks().end()),
            (std::vector<std::string>{"document", "query"}));
  plain.set_task("nonsense");
  EXPECT_THAT(Refusal(plain), ::testing::HasSubstr("task: is not a task of this model"));
  plain.set_task("query");
  plain.set_output(v1::POOLED);
  EXPECT_THAT(Refusal(plain), ::testing::HasSubstr("has no POOLED; it has SPARSE"));
}

TEST_F(ServerHeadsTest, SparseRowsHoldNumbersOrAreRefused) {
  const int64_t hidden = Describe("splade_bert").hidden_size();
  v1::EncodeRequest request;
  request.set_model("splade_bert");
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
    const std::string refusal = Refusal(with_last(bad));
    EXPECT_EQ(refusal.find("INVALID_ARGUMENT NON_FINITE_INPUT embeddings.values"), 0U) << refusal;
    EXPECT_NE(refusal.find("row 1"), std::string::npos) << refusal;
    request.set_output(v1::POOLED);  // which can hold them
    EXPECT_TRUE(Encode(request).has_output());
    request.set_output(v1::SPARSE);
  }
}

TEST_F(ServerHeadsTest, CastEncodersClassifyWithTheirOwnKernel) {
  const char* const name = "cast_top_k";
  const json cases = CasesOf(name);
  const v1::EncodeResponse scores = Encode(RequestFor(name, cases, v1::ENCODE_OUTPUT_DEFAULT));
  ExpectRows(scores, cases, "SCORES");
  ASSERT_EQ(scores.labels_size(), 3);
  EXPECT_EQ(scores.labels(2), "stormy");
  ASSERT_TRUE(scores.kernel().has_cast());
  EXPECT_EQ(scores.kernel().cast().clustering(), v1::Cast::TOP_K);
  ExpectRows(Encode(RequestFor(name, cases, v1::LOGITS)), cases, "LOGITS");

  const v1::Model model = Describe(name);
  EXPECT_EQ(model.family(), "castor_cast");
  ASSERT_EQ(model.kernels_size(), 1);
  EXPECT_EQ(model.kernels(0), v1::CAST);
  EXPECT_EQ(model.outputs(0), v1::SCORES);
  ASSERT_EQ(model.labels_size(), 3);
  EXPECT_EQ(model.labels(0), "calm");
}

TEST_F(ServerHeadsTest, LanguageModelsScorePairsWithCausalLayers) {
  const char* const name = "saved_qwen3-rerank";
  const json cases = CasesOf(name);
  v1::EncodeRequest request = RequestFor(name, cases, v1::ENCODE_OUTPUT_DEFAULT);
  ExpectRows(Encode(request), cases, "SCORES");
  request.mutable_automatic();
  const v1::EncodeResponse chosen = Encode(request);
  ExpectRows(chosen, cases, "SCORES");
  EXPECT_TRUE(chosen.kernel().vanilla().causal());
  request.mutable_improved_clustered();
  EXPECT_EQ(Refusal(request).find("FAILED_PRECONDITION KERNEL_NOT_AVAILABLE"), 0U);
  EXPECT_NE(Refusal(request).find("improved_clustered"), std::string::npos) << Refusal(request);
  const v1::Model model = Describe(name);
  EXPECT_EQ(model.family(), "qwen3");
  ASSERT_EQ(model.kernels_size(), 1);
  EXPECT_EQ(model.kernels(0), v1::VANILLA);
  EXPECT_EQ(model.outputs(0), v1::SCORES);
}

TEST_F(ServerHeadsTest, CastIsForThoseWhoseLayersItIs) {
  v1::EncodeRequest request = EncodeOf({"a"});
  request.set_model("cast_top_k");
  request.mutable_vanilla();
  EXPECT_EQ(Refusal(request).find("FAILED_PRECONDITION KERNEL_NOT_AVAILABLE"), 0U);
  EXPECT_NE(Refusal(request).find("vanilla: "), std::string::npos) << Refusal(request);
  request.mutable_automatic();
  EXPECT_EQ(Refusal(request).find("FAILED_PRECONDITION KERNEL_NOT_AVAILABLE"), 0U)
      << Refusal(request);
  request.mutable_cast()->set_layer("long/0");
  EXPECT_EQ(Refusal(request).find("INVALID_ARGUMENT INVALID_FIELD cast.layer"), 0U)
      << Refusal(request);
  request.mutable_cast()->Clear();
  EXPECT_TRUE(Encode(request).kernel().has_cast());
  request.set_model("bert_sequences");
  EXPECT_EQ(Refusal(request).find("FAILED_PRECONDITION KERNEL_NOT_AVAILABLE"), 0U)
      << Refusal(request);
}

}  // namespace
}  // namespace castor::testing
