// The answers of the HTTP door: its protocols give what castor.v1 gives, in their own forms.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/integration/http/fixture.h"

namespace castor::testing {
namespace {

using ::testing::HasSubstr;

// The rows of a tensor.
std::vector<std::vector<float>> RowsOf(const v1::Tensor& tensor) {
  const std::vector<float> values = FloatsOf(tensor);
  std::vector<std::vector<float>> rows;
  for (auto at = values.begin(); at != values.end(); at += tensor.shape(1)) {
    rows.emplace_back(at, at + tensor.shape(1));
  }
  return rows;
}

std::vector<float> FromBase64(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(text, &bytes));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_F(ServerHttpTest, EveryProtocolGivesTheVectorsOfCastorV1) {
  Start({"tiny_bert"});
  const std::vector<std::string> texts = {"cat", "a dog\n\"and\" \u00e9\U0001F600", ""};
  const auto rows = RowsOf(Encode(EncodeOf(texts)).output());
  v1::EncodeRequest normalized = EncodeOf(texts);
  normalized.set_normalize(true);
  const auto unit_rows = RowsOf(Encode(normalized).output());
  const json floats = Post("/v1/embeddings", {{"input", texts}}).json();
  const json packed =
      Post("/embeddings", {{"input", texts}, {"model", "tiny_bert"}, {"encoding_format", "base64"}})
          .json();
  const json bare = Post("/embed", {{"inputs", texts}}).json();
  const json weaviate = Post("/vectors", {{"texts", texts}}).json();
  ASSERT_EQ(floats["data"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(floats["data"][i]["index"], i);
    EXPECT_EQ(floats["data"][i]["embedding"].get<std::vector<float>>(), rows[i]);
    EXPECT_EQ(FromBase64(packed["data"][i]["embedding"]), rows[i]);
    EXPECT_EQ(bare[i].get<std::vector<float>>(), unit_rows[i]);
    EXPECT_EQ(weaviate["vectors"][i].get<std::vector<float>>(), rows[i]);
  }
  EXPECT_EQ(floats["object"], "list");
  EXPECT_EQ(floats["model"], "tiny_bert");
  EXPECT_GT(floats["usage"]["total_tokens"], 3);
  const json one = Post("/vectors", {{"text", texts[1]}, {"config", {{"dimensions", 2}}}}).json();
  EXPECT_EQ(one["text"], texts[1]);
  EXPECT_EQ(one["dims"], 2);
}

TEST_F(ServerHttpTest, ALongAnswerComesInPieces) {
  Start({"tiny_bert"});
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(std::string(static_cast<size_t>(i % 7), 'a'));
  HttpExchange connection = Connect();
  const json body = {{"inputs", texts}};
  const HttpAnswer answer = connection.Post("/embed_all", body.dump());
  EXPECT_EQ(answer.fields.at("transfer-encoding"), "chunked");
  const json rows = answer.json();
  ASSERT_EQ(rows.size(), texts.size());
  for (size_t i = 0; i < texts.size(); i += 50) {
    v1::EncodeRequest request = EncodeOf({texts[i]});
    request.set_output(v1::TOKEN_EMBEDDINGS);
    EXPECT_EQ(rows[i].get<std::vector<std::vector<float>>>(), RowsOf(Encode(request).output()))
        << i;
  }
  EXPECT_EQ(connection.Get("/health").status, 200) << "the connection lives on";
  const HttpAnswer pooled = connection.Post("/pooling", json{{"input", texts}}.dump());
  EXPECT_EQ(pooled.json()["data"][299]["data"], rows[299]);
}

TEST_F(ServerHttpTest, TheRequestsFormDecidesARerankersAnswer) {
  Start({"cross_encoder", "tiny_bert"});
  const std::vector<std::string> documents = {"a", "bb cc", "a dog"};
  v1::RerankRequest request;
  request.set_model("cross_encoder");
  request.set_query("cat");
  for (const std::string& text : documents) request.add_documents(text);
  const v1::RerankResponse expected = Rerank(request);

  const json cohere = Post("/v2/rerank", {{"query", "cat"},
                                          {"documents", documents},
                                          {"top_n", nullptr},
                                          {"return_documents", true},
                                          {"unknown", {1}}})
                          .json();
  const json tei = Post("/rerank", {{"query", "cat"}, {"texts", documents}}).json();
  ASSERT_EQ(cohere["results"].size(), 3u);
  ASSERT_EQ(tei.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const auto& row = expected.results(i);
    EXPECT_EQ(cohere["results"][i]["index"], row.index());
    EXPECT_EQ(cohere["results"][i]["relevance_score"].get<float>(), row.score());
    EXPECT_EQ(cohere["results"][i]["document"]["text"], documents[row.index()]);
    EXPECT_EQ(tei[i], (json{{"index", row.index()}, {"score", tei[i]["score"]}}));
    EXPECT_EQ(tei[i]["score"].get<float>(), row.score());
  }
  const json weaviate =
      Post("/rerank", {{"query", "cat"}, {"documents", documents}, {"property", ""}}).json();
  EXPECT_EQ(weaviate["query"], "cat");
  EXPECT_EQ(weaviate["scores"][expected.results(0).index()]["score"].get<float>(),
            expected.results(0).score());
  const json objects =
      Post("/rerank",
           {{"query", "cat"}, {"top_n", 1}, {"documents", {{{"text", "a"}}, {{"text", "bb cc"}}}}})
          .json();
  EXPECT_EQ(objects["results"].size(), 1u);
  const json scores =
      Post("/score", {{"text_1", "cat"}, {"text_2", documents}, {"model", "cross_encoder"}}).json();
  EXPECT_EQ(scores["data"][expected.results(2).index()]["score"].get<float>(),
            expected.results(2).score());
}

TEST_F(ServerHttpTest, RerankersTakeVllmsInstruction) {
  StartReal({{"judge", kGolden + "rerankers/qwen3"}, {"cross", kGolden + "heads/cross_encoder"}},
            HttpOptions());
  json body = {{"model", "judge"}, {"query", "cat"}, {"documents", {"a dog"}}};
  const json plain = Post("/rerank", body).json();
  body["instruction"] = "Find dogs";
  const json told = Post("/v1/rerank", body).json();
  v1::RerankRequest request;
  request.set_model("judge");
  request.set_query("cat");
  request.add_documents("a dog");
  request.set_instruction("Find dogs");
  const v1::RerankResponse expected = Rerank(request);
  EXPECT_EQ(told["results"][0]["relevance_score"].get<float>(), expected.results(0).score());
  EXPECT_NE(plain["results"][0], told["results"][0]);
  body["model"] = "cross";
  EXPECT_EQ(Post("/v1/rerank", body).json()["error"]["param"], "instruction");
  // A text alone is not what it judges.
  EXPECT_EQ(Post("/v1/embeddings", {{"model", "judge"}, {"input", "cat"}}).json()["error"]["param"],
            "input");
}

TEST_F(ServerHttpTest, ClassifiersAnswerInTheFormsOfTeiAndVllm) {
  Start({"bert_sequences"});
  v1::EncodeRequest request = EncodeOf({"cat", "a dog"});
  request.set_output(v1::SCORES);
  const auto rows = RowsOf(Encode(request).output());
  const json vllm = Post("/classify", {{"input", {"cat", "a dog"}}}).json();
  const json tei = Post("/predict", {{"inputs", {{"cat"}, {"a dog"}}}}).json();
  const json one = Post("/predict", {{"inputs", "cat"}}).json();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(vllm["data"][i]["probs"].get<std::vector<float>>(), rows[i]);
    EXPECT_EQ(vllm["data"][i]["label"], tei[i][0]["label"]);
    EXPECT_EQ(tei[i][0]["score"].get<float>(), *std::max_element(rows[i].begin(), rows[i].end()));
  }
  EXPECT_EQ(one, tei[0]);
  const json type = Connect().Get("/info").json()["model_type"]["classifier"];
  EXPECT_EQ(type["id2label"].size(), rows[0].size());
  EXPECT_EQ(type["label2id"][type["id2label"]["1"]], 1);
}

TEST_F(ServerHttpTest, TokensGoThereAndBack) {
  Start({"tiny_bert"});
  const json tokens = Post("/tokenize", {{"inputs", {"cat", "a dog"}}}).json();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_TRUE(tokens[0][0]["special"]);
  EXPECT_EQ(tokens[0][0]["start"], nullptr);
  std::vector<int64_t> ids;
  for (const json& token : tokens[1]) ids.push_back(token["id"]);
  EXPECT_EQ(Post("/decode", {{"ids", ids}}).json(), json({"a dog"}));
  for (const std::vector<std::string>& texts : std::vector<std::vector<std::string>>{
           {"a", "", "a"}, {"", "", "a"}, {"", "a", ""}, {"", ""}, {""}}) {
    const json rows = Post("/tokenize", {{"inputs", texts}, {"add_special_tokens", false}}).json();
    ASSERT_EQ(rows.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(rows[i].size(), texts[i].size()) << rows;
  }
}

TEST_F(ServerHttpTest, AttentionTakesBinaryTensors) {
  Start({});
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  json inputs = json::array(), plain = json::array();
  std::string binary;
  for (const char* name : {"query", "key", "value"}) {
    json input = {{"name", name}, {"datatype", "FP32"}, {"shape", {4, 1, 2}}};
    plain.push_back(input);
    plain.back()["data"] = values;
    input["parameters"]["binary_data_size"] = 32;
    inputs.push_back(input);
    binary.append(reinterpret_cast<const char*>(values.data()), 32);
  }
  const std::string header =
      json{{"inputs", inputs}, {"parameters", {{"binary_data_output", true}}}}.dump();
  const HttpAnswer answer =
      Connect().Post("/v2/models/castor_attention/infer", header + binary,
                     "Inference-Header-Content-Length: " + std::to_string(header.size()) + "\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const size_t json_size = std::stoul(answer.fields.at("inference-header-content-length"));
  const json head = json::parse(answer.body.substr(0, json_size));
  ASSERT_EQ(head["outputs"][0]["name"], "output");
  std::vector<float> output(8);
  std::memcpy(output.data(), answer.body.data() + json_size, 32);
  const json text = Post("/v2/models/castor_attention/infer", {{"inputs", plain}}).json();
  EXPECT_EQ(text["outputs"][0]["data"].get<std::vector<float>>(), output);
  EXPECT_GT(output[7], output[6]);

  // Beyond a piece, in either form.
  json large = json::array();
  for (const char* name : {"query", "key", "value"}) {
    large.push_back({{"name", name},
                     {"datatype", "FP32"},
                     {"shape", {256, 1, 128}},
                     {"data", std::vector<float>(256 * 128, 0.1f)}});
  }
  const json long_text = Post("/v2/models/castor_attention/infer", {{"inputs", large}}).json();
  const HttpAnswer long_binary =
      Post("/v2/models/castor_attention/infer",
           {{"inputs", large}, {"parameters", {{"binary_data_output", true}}}});
  const auto numbers = long_text["outputs"][0]["data"].get<std::vector<float>>();
  ASSERT_EQ(numbers.size(), 256u * 128);
  EXPECT_EQ(std::memcmp(numbers.data(),
                        long_binary.body.data() +
                            std::stoul(long_binary.fields.at("inference-header-content-length")),
                        numbers.size() * sizeof(float)),
            0);

  inputs[2]["parameters"]["binary_data_size"] = 33;
  const std::string wrong = json{{"inputs", inputs}}.dump();
  EXPECT_THAT(Connect()
                  .Post("/v2/models/castor_attention/infer", wrong + binary,
                        "Inference-Header-Content-Length: " + std::to_string(wrong.size()) + "\r\n")
                  .body,
              HasSubstr("ends before"));
}

}  // namespace
}  // namespace castor::testing
