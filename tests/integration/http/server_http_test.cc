// What the HTTP door keeps that every door promises: errors in the form of the path's protocol,
// bodies in any form that HTTP allows, callers, overload and drains.

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "tests/integration/http/fixture.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST_F(ServerHttpTest, ErrorsHaveTheFormOfThePathsProtocol) {
  Start({"tiny_bert"});
  struct Case {
    const char* path;
    std::string body;
    const char* text;  // in the message
    const char* code = "INVALID_FIELD";
    int status = 400;
  };
  constexpr char embed[] = "/v1/embeddings";
  const std::string deep(1 << 20, '['), digits(1 << 20, '7'), zeros(400, '0');
  std::string words;
  for (int i = 0; i < 100; ++i) words += "cat ";
  std::string members = "{\"input\": \"a\"";
  for (int i = 0; i < 1100; ++i) members += ", \"k" + std::to_string(i) + "\": 1";
  for (const Case& c : std::initializer_list<Case>{
           {embed, R"({"input": [1, 2]})", "check_embedding_ctx_length=False"},
           {embed, R"({"input": [[1], [2]]})", "token ids"},
           {embed, R"({"input": ["a", 1]})", "input[1]"},
           {embed, R"({"input": []})", "input"},
           {embed, R"({})", "input"},
           {embed, R"({"input": {}})", "input"},
           {embed, R"({"input": "a", "model": "b"})", "\"b\"", "MODEL_NOT_FOUND", 404},
           {embed, R"({"input": "a", "model": 7})", "model"},
           {embed, R"({"input": "a", "dimensions": 9999})", "dimensions"},
           {embed, R"({"input": "a", "dimensions": 0})", "dimensions"},
           {embed, R"({"input": "a", "encoding_format": "f16"})", "base64"},
           {embed, "{\"input\": \"\xff\"}", "UTF-8"},
           {embed, R"({"input": "\ud800"})", "not JSON", "MALFORMED_MESSAGE"},
           {embed, R"([1])", "object", "MALFORMED_MESSAGE"},
           {embed, R"({"input": "a"} x)", "not JSON", "MALFORMED_MESSAGE"},
           {embed, "", "not JSON", "MALFORMED_MESSAGE"},
           {embed, deep, "not JSON", "MALFORMED_MESSAGE"},
           {embed, "{\"input\": " + digits + "}", "too big", "MALFORMED_MESSAGE"},
           {embed, "{\"x\": 0." + zeros + "123456789012345678901, \"input\": []}",
            "1 to 4096 texts"},
           {embed, std::string("{\"input\": \"a\"}\0", 15), "NUL", "MALFORMED_MESSAGE"},
           {embed, members + "}", "members", "MALFORMED_MESSAGE"},
           {"/v1/rerank", R"({"query": "a", "documents": ["b"]})", "rerank", "MODEL_NOT_FOUND",
            404},
           {"/v1/rerank", R"({"query": "a", "documents": ["b"], "model": "tiny_bert"})",
            "cannot rerank"},
           {"/v1/nothing", "{}", "/docs", "NOT_SERVED", 404},
           {"/predict", R"({"inputs": [["a", 5]], "model": "tiny_bert"})", "cannot classify"},
           {"/rerank", R"({"query": "a", "texts": []})", "rerank", "MODEL_NOT_FOUND", 404},
           {"/models/none/embed", R"({"inputs": "a"})", "\"none\"", "MODEL_NOT_FOUND", 404},
           {"/decode", R"({"ids": [-1]})", "ids[0]"},
           {"/vectors", R"({"text": ["a", "b"]})", "text"},
           {"/similarity",
            "{\"inputs\": {\"source_sentence\": \"a\", \"sentences\": [\"b\", \"" + words +
                "\"]}, \"truncate\": false}",
            "inputs.sentences[1]"},
           {"/v1/score",
            "{\"text_1\": \"" + words + "\", \"text_2\": [\"b\"], \"truncate\": false}", "text_1"},
           {"/embed", R"({"inputs": 1})", "inputs"},
           {"/embed", R"({"inputs": "a", "truncation_direction": "up"})", "left or right"},
           {"/v2/models/none/infer", R"({"inputs": []})", "none", "MODEL_NOT_FOUND", 404},
           {"/v2/models/tiny_bert/infer", R"({"inputs": [{"name": "text", "shape": [1],
            "datatype": "FP16", "data": [1]}]})",
            "text"}}) {
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
