// The HTTP door over real sockets: that its protocols give what castor.v1 gives, in their own
// forms, and that it keeps what every door promises.

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/escaping.h"
#include "engine/base/error.h"
#include "tests/integration/http/http_exchange.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kGolden = CASTOR_GOLDEN_ENCODER;

server::ServerOptions HttpOptions() {
  server::ServerOptions options = TestOptions();
  options.http.listen = "127.0.0.1:0";
  return options;
}

class ServerHttpTest : public ServerTest {
 protected:
  void Start(const std::vector<std::string>& models,
             server::ServerOptions options = HttpOptions()) {
    std::vector<ModelSource> sources;
    for (const std::string& name : models) {
      sources.push_back({name, kGolden + (name == "tiny_bert" ? "/" : "/heads/") + name});
    }
    StartReal(std::move(sources), std::move(options));
  }

  HttpExchange Connect() const { return HttpExchange(server_->http_port()); }
  HttpAnswer Post(const std::string& path, const json& body, const std::string& fields = "") const {
    return Connect().Post(path, body.dump(), fields);
  }

  // The rows that castor.v1 gives.
  std::vector<std::vector<float>> Rows(v1::EncodeRequest request) const {
    const v1::EncodeResponse response = Encode(request);
    const auto width = static_cast<size_t>(response.output().shape(1));
    std::vector<float> values(response.output().raw().size() / sizeof(float));
    std::memcpy(values.data(), response.output().raw().data(), response.output().raw().size());
    std::vector<std::vector<float>> rows;
    for (size_t at = 0; at < values.size(); at += width) {
      rows.emplace_back(values.begin() + static_cast<ptrdiff_t>(at),
                        values.begin() + static_cast<ptrdiff_t>(at + width));
    }
    return rows;
  }
};

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
  const auto rows = Rows(EncodeOf(texts));
  v1::EncodeRequest normalized = EncodeOf(texts);
  normalized.set_normalize(true);
  const auto unit_rows = Rows(normalized);
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
    EXPECT_EQ(rows[i].get<std::vector<std::vector<float>>>(), Rows(request)) << i;
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
  grpc::ClientContext context;
  v1::RerankResponse expected;
  ASSERT_TRUE(encoder_->Rerank(&context, request, &expected).ok());

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
  StartReal({{"judge", kGolden + std::string("/rerankers/qwen3")},
             {"cross", kGolden + std::string("/heads/cross_encoder")}},
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
  grpc::ClientContext context;
  v1::RerankResponse expected;
  ASSERT_TRUE(encoder_->Rerank(&context, request, &expected).ok());
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
  const auto rows = Rows(request);
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

TEST_F(ServerHttpTest, ErrorsHaveTheFormOfThePathsProtocol) {
  Start({"tiny_bert"});
  struct Case {
    const char* path;
    std::string body;
    int status;
    const char* code;
    const char* text;  // in the message
  };
  const std::string deep(1 << 20, '['), digits(1 << 20, '7'), zeros(400, '0');
  std::string words;
  for (int i = 0; i < 100; ++i) words += "cat ";
  std::string members = "{\"input\": \"a\"";
  for (int i = 0; i < 1100; ++i) members += ", \"k" + std::to_string(i) + "\": 1";
  for (const Case& c : std::initializer_list<Case>{
           {"/v1/embeddings", R"({"input": [1, 2]})", 400, "INVALID_FIELD",
            "check_embedding_ctx_length=False"},
           {"/v1/embeddings", R"({"input": [[1], [2]]})", 400, "INVALID_FIELD", "token ids"},
           {"/v1/embeddings", R"({"input": ["a", 1]})", 400, "INVALID_FIELD", "input[1]"},
           {"/v1/embeddings", R"({"input": []})", 400, "INVALID_FIELD", "input"},
           {"/v1/embeddings", R"({})", 400, "INVALID_FIELD", "input"},
           {"/v1/embeddings", R"({"input": {}})", 400, "INVALID_FIELD", "input"},
           {"/v1/embeddings", R"({"input": "a", "model": "b"})", 404, "MODEL_NOT_FOUND", "\"b\""},
           {"/v1/embeddings", R"({"input": "a", "model": 7})", 400, "INVALID_FIELD", "model"},
           {"/v1/embeddings", R"({"input": "a", "dimensions": 9999})", 400, "INVALID_FIELD",
            "dimensions"},
           {"/v1/embeddings", R"({"input": "a", "dimensions": 0})", 400, "INVALID_FIELD",
            "dimensions"},
           {"/v1/embeddings", R"({"input": "a", "encoding_format": "f16"})", 400, "INVALID_FIELD",
            "base64"},
           {"/v1/embeddings", "{\"input\": \"\xff\"}", 400, "INVALID_FIELD", "UTF-8"},
           {"/v1/embeddings", R"({"input": "\ud800"})", 400, "MALFORMED_MESSAGE", "not JSON"},
           {"/v1/embeddings", R"([1])", 400, "MALFORMED_MESSAGE", "object"},
           {"/v1/embeddings", R"({"input": "a"} x)", 400, "MALFORMED_MESSAGE", "not JSON"},
           {"/v1/embeddings", "", 400, "MALFORMED_MESSAGE", "not JSON"},
           {"/v1/embeddings", deep, 400, "MALFORMED_MESSAGE", "not JSON"},
           {"/v1/embeddings", "{\"input\": " + digits + "}", 400, "MALFORMED_MESSAGE", "too big"},
           {"/v1/embeddings", "{\"x\": 0." + zeros + "123456789012345678901, \"input\": []}", 400,
            "INVALID_FIELD", "1 to 4096 texts"},
           {"/v1/embeddings", std::string("{\"input\": \"a\"}\0", 15), 400, "MALFORMED_MESSAGE",
            "NUL"},
           {"/v1/embeddings", members + "}", 400, "MALFORMED_MESSAGE", "members"},
           {"/v1/rerank", R"({"query": "a", "documents": ["b"]})", 404, "MODEL_NOT_FOUND",
            "rerank"},
           {"/v1/rerank", R"({"query": "a", "documents": ["b"], "model": "tiny_bert"})", 400,
            "INVALID_FIELD", "cannot rerank"},
           {"/v1/nothing", "{}", 404, "NOT_SERVED", "/docs"},
           {"/predict", R"({"inputs": [["a", 5]], "model": "tiny_bert"})", 400, "INVALID_FIELD",
            "cannot classify"},
           {"/rerank", R"({"query": "a", "texts": []})", 404, "MODEL_NOT_FOUND", "rerank"},
           {"/models/none/embed", R"({"inputs": "a"})", 404, "MODEL_NOT_FOUND", "\"none\""},
           {"/decode", R"({"ids": [-1]})", 400, "INVALID_FIELD", "ids[0]"},
           {"/vectors", R"({"text": ["a", "b"]})", 400, "INVALID_FIELD", "text"},
           {"/similarity",
            "{\"inputs\": {\"source_sentence\": \"a\", \"sentences\": [\"b\", \"" + words +
                "\"]}, \"truncate\": false}",
            400, "INVALID_FIELD", "inputs.sentences[1]"},
           {"/v1/score",
            "{\"text_1\": \"" + words + "\", \"text_2\": [\"b\"], \"truncate\": false}", 400,
            "INVALID_FIELD", "text_1"},
           {"/embed", R"({"inputs": 1})", 400, "INVALID_FIELD", "inputs"},
           {"/embed", R"({"inputs": "a", "truncation_direction": "up"})", 400, "INVALID_FIELD",
            "left or right"},
           {"/v2/models/none/infer", R"({"inputs": []})", 404, "MODEL_NOT_FOUND", "none"},
           {"/v2/models/tiny_bert/infer", R"({"inputs": [{"name": "text", "shape": [1],
            "datatype": "FP16", "data": [1]}]})",
            400, "INVALID_FIELD", "text"}}) {
    const HttpAnswer answer = Connect().Post(c.path, c.body);
    ASSERT_EQ(answer.status, c.status) << c.path << c.body.substr(0, 80) << answer.body;
    const json error = answer.json();
    const bool openai = error["error"].is_object();
    EXPECT_EQ(openai, std::string(c.path).starts_with("/v1")) << answer.body;
    EXPECT_EQ(openai ? error["error"]["code"] : error["code"], c.code) << answer.body;
    EXPECT_THAT((openai ? error["error"]["message"] : error["error"]).get<std::string>(),
                HasSubstr(c.text));
  }
  const HttpAnswer get = Connect().Get("/v1/embeddings");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.fields.at("allow"), "POST");
}

TEST_F(ServerHttpTest, TheDocumentOfPathsIsWhatIsServed) {
  Start({"tiny_bert"});
  const json docs = Connect().Get("/docs").json();
  EXPECT_EQ(docs["openapi"], "3.0.3");
  EXPECT_GT(docs["paths"].size(), 30u);
  for (const auto& [path, operations] : docs["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string place = path;
      if (const size_t at = place.find("{model}"); at != place.npos) {
        place.replace(at, 7, "tiny_bert");
      }
      const std::string body = method == "get" ? "" : "{}";
      const int status = Connect().Send(method == "get" ? "GET" : "POST", place, body, "").status;
      EXPECT_THAT(status, ::testing::AnyOf(200, 400, method == "post" ? 404 : 200)) << path;
    }
  }
  EXPECT_THAT(Connect().Get("/").body, HasSubstr("tiny_bert"));
  EXPECT_EQ(Connect().Get("/v1/models").json()["data"][0]["id"], "tiny_bert");
  EXPECT_EQ(Connect().Get("/v1/models/tiny_bert").json()["owned_by"], "castor");
  const json info = Connect().Get("/info").json();
  EXPECT_EQ(info["model_id"], "tiny_bert");
  EXPECT_EQ(info["model_type"], (json{{"embedding", {{"pooling", "cls"}}}}));
  EXPECT_EQ(Connect().Send("HEAD", "/nothing", "", "Connection: close\r\n").status, 404);
}

TEST_F(ServerHttpTest, AModelIsChosenByFieldHeaderOrPath) {
  Start({"tiny_bert", "dense"});
  const json input = {{"inputs", "cat"}};
  EXPECT_EQ(Post("/embed", input).status, 404);
  EXPECT_EQ(Post("/embed", input, "castor-model: dense\r\n").status, 200);
  const json by_path = Post("/models/tiny_bert/embed", input).json();
  EXPECT_EQ(by_path, Post("/embed", input, "castor-model: tiny_bert\r\n").json());
  EXPECT_EQ(Post("/v1/embeddings", {{"input", "cat"}, {"model", "dense-query"}}).status, 200);
  EXPECT_EQ(Post("/models/none/embed", input).status, 404);
}

TEST_F(ServerHttpTest, BodiesComeInAnyWayThatHttpAllows) {
  Start({"tiny_bert"});
  HttpExchange connection = Connect();
  const std::string body = R"({"inputs": "cat"})";
  const HttpAnswer usual = connection.Post("/embed", body, "x-request-id: mine\r\n");
  EXPECT_EQ(usual.fields.at("x-request-id"), "mine");
  EXPECT_EQ(usual.fields.at("connection"), "keep-alive");
  connection.Write(
      "POST /embed?x=y HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
      body.substr(0, 5) + "\r\nc\r\n" + body.substr(5) + "\r\n0\r\n\r\n");
  EXPECT_EQ(connection.Read().body, usual.body);
  connection.Write(
      "POST http://host/embed HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 17\r\n\r\n");
  EXPECT_EQ(connection.Read().status, 100);
  connection.Write(body);
  EXPECT_EQ(connection.Read().body, usual.body);
  // Two at once, of which the second comes while the first is computed.
  const std::string request =
      "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n" + body;
  connection.Write(request + request);
  EXPECT_EQ(connection.Read().body, usual.body);
  EXPECT_EQ(connection.Read().body, usual.body);
  connection.Write("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(connection.Read().fields.at("connection"), "close");
  EXPECT_TRUE(connection.Ended());
}

TEST_F(ServerHttpTest, BodiesThatMayNotBeReadAreNotWaitedFor) {
  server::ServerOptions options = HttpOptions();
  options.transfer_timeout = seconds(1);
  StartServer(options);
  const std::string post = "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\n";
  for (const auto& [fields, status] : std::initializer_list<std::pair<std::string, int>>{
           {"Content-Length: 99999999\r\n", 413},
           {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
           {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
           {"Transfer-Encoding: gzip, chunked\r\n", 400},
           {"Transfer-Encoding: xchunked\r\n", 400},
           {"Transfer-Encoding: chunked\r\n\r\n+1", 400},
           {"X: " + std::string(20'000, 'x') + "\r\n", 431},
           {"Content-Length: 5\r\ncastor-tenant: a b\r\n", 400},
           {"Content-Length: 100\r\n", 408}}) {
    HttpExchange connection = Connect();
    ASSERT_TRUE(connection.Write(post + fields + "\r\nx"));
    const HttpAnswer answer = connection.Read();
    EXPECT_EQ(answer.status, status) << fields.substr(0, 80) << answer.body;
    EXPECT_EQ(answer.fields.at("connection"), "close");
    EXPECT_TRUE(connection.Ended());
  }
  HttpExchange idle = Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  EXPECT_TRUE(idle.Ended()) << "after a second without a request";
  EXPECT_TRUE(AwaitNoCalls());
}

// Lets in who says "Bearer beaver", for reranking alone.
class OnlyBeaver final : public server::Authorizer {
 public:
  absl::StatusOr<server::Caller> Authorize(const server::Call& call,
                                           std::string_view method) const override {
    if (call.header("authorization") != "Bearer beaver") {
      return MakeError(Reason::kUnauthenticated, "who is there?");
    }
    if (method != "/castor.v1.EncoderService/Rerank") {
      return MakeError(Reason::kPermissionDenied, "may only rerank");
    }
    return server::Caller{"beaver", "beaver"};
  }
};

TEST_F(ServerHttpTest, CallersNeedWhatTheyNeedForTheMethodOfCastorV1) {
  server::ServerOptions options = HttpOptions();
  options.http.allow_origin = "https://page";
  StartServer(options, std::make_unique<FakeEngine>(), std::make_unique<OnlyBeaver>());
  const json body = {{"query", "a"}, {"documents", {"b"}}};
  const HttpAnswer nobody = Post("/v1/rerank", body);
  EXPECT_EQ(nobody.status, 401);
  EXPECT_EQ(nobody.fields.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Post("/v1/nothing", body).status, 401);
  EXPECT_EQ(Post("/v1/embeddings", body, "api-key: beaver\r\n").status, 403);
  EXPECT_EQ(Post("/v1/rerank", body, "Authorization: Bearer beaver\r\n").status, 404)
      << "no model can";
  const HttpAnswer asks = Connect().Send("OPTIONS", "/v1/rerank", "", "Origin: https://page\r\n");
  EXPECT_EQ(asks.status, 204);
  EXPECT_EQ(asks.fields.at("access-control-allow-origin"), "https://page");
}

TEST_F(ServerHttpTest, OverloadSaysWhenToComeAgain) {
  StartServer(HttpOptions());
  engine_->RefuseWith(QueueFull("full", milliseconds(1500)));
  const HttpAnswer answer = Post("/v1/embeddings", {{"input", "a"}});
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.fields.at("retry-after"), "2");
}

TEST_F(ServerHttpTest, ACallerWhoLeavesIsNotComputedFor) {
  StartServer(HttpOptions());
  engine_->Hold();
  {
    HttpExchange connection = Connect();
    connection.Write(
        "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"inputs\": \"a\"}");
    ASSERT_TRUE(engine_->AwaitWaiting(1));
  }
  EXPECT_TRUE(engine_->AwaitCancels(1));
  EXPECT_TRUE(AwaitNoCalls());
  engine_->Release();
}

TEST_F(ServerHttpTest, ADrainAnswersWhatItAdmittedAndEndsIdleConnections) {
  StartServer(HttpOptions());
  engine_->Hold();
  HttpExchange idle = Connect(), silent = Connect(), dripping = Connect(), busy = Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  dripping.Write("POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{");
  busy.Write("POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"inputs\": \"a\"}");
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  std::thread drain([this] { EXPECT_TRUE(server_->Drain()); });
  EXPECT_TRUE(idle.Ended());
  EXPECT_TRUE(silent.Ended());
  EXPECT_EQ(dripping.Read().status, 503);
  engine_->Release();
  const HttpAnswer answer = busy.Read();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.fields.at("connection"), "close");
  EXPECT_TRUE(busy.Ended());
  drain.join();
}

}  // namespace
}  // namespace castor::testing
