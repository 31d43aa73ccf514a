// Adapters by task over a socket: requests of all tasks share a batch and get the bytes that each
// gets alone; every protocol can name a task.

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "tests/integration/http/http_exchange.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerAdaptersTest : public ServerTest {
 protected:
  void Start(std::chrono::milliseconds delay = {}) {
    const std::string golden = CASTOR_GOLDEN_ENCODER;
    server::ServerOptions options = TestOptions();
    options.http.listen = "127.0.0.1:0";
    EngineOptions engine;
    engine.batch_delay = delay;
    engine.cpu_threads = 2;
    const std::string peft = golden + "/adapters/bert/";
    StartReal({{.name = "bert",
                .directory = golden + "/directories/bert-embed",
                .adapters = {{"all", peft + "all"}, {"some", peft + "some"}}},
               {.name = "bare", .directory = golden + "/directories/bert-embed"},
               {.name = "multi",
                .directory = golden + "/directories/bert-multi",
                .adapters = {{"all", peft + "all"}}},
               {.name = "v3", .directory = golden + "/adapters/jina_v3"},
               {.name = "v5", .directory = golden + "/adapters/jina_v5_small"}},
              std::move(options), engine);
  }

  static v1::EncodeRequest RequestOf(const std::string& model, const std::string& task,
                                     const std::vector<std::string>& texts) {
    v1::EncodeRequest request = EncodeOf(texts);
    request.set_model(model);
    request.set_task(task);
    return request;
  }

  nlohmann::json Post(const std::string& path, const nlohmann::json& body) {
    return HttpExchange(server_->http_port()).Post(path, body.dump()).json();
  }
};

TEST_F(ServerAdaptersTest, MixedTasksOfOneBatchGetTheBytesOfEachAlone) {
  for (const std::string model : {"bert", "v3"}) {
    Start();
    std::vector<v1::EncodeRequest> requests;
    std::vector<std::string> alone;
    const std::vector<std::string> tasks =
        model == "v3" ? std::vector<std::string>{"", "retrieval.query", "text-matching"}
                      : std::vector<std::string>{"", "all", "some"};
    for (int i = 0; i < 9; ++i) {
      const std::string text = std::string(i % 4, 'x') + " The mill";
      requests.push_back(RequestOf(model, tasks[i % 3], {text, "answers", "a"}));
      alone.push_back(Encode(requests.back()).output().raw());
    }
    EXPECT_EQ(std::set<std::string>(alone.begin(), alone.begin() + 3).size(), 3);
    Start(std::chrono::milliseconds(200));
    std::vector<v1::EncodeResponse> together(requests.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < requests.size(); ++i) {
      threads.emplace_back([&, i] { together[i] = Encode(requests[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    int most = 0;  // requests in one batch
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i].output().raw(), alone[i]) << model << i;
      most = std::max(most, together[i].batch().requests());
    }
    EXPECT_GT(most, 3);  // as many as have one task
  }
}

TEST_F(ServerAdaptersTest, WithoutATaskAreTheModel) {
  Start();
  EXPECT_EQ(Encode(RequestOf("bert", "", {"The mill"})).output().raw(),
            Encode(RequestOf("bare", "", {"The mill"})).output().raw());
}

TEST_F(ServerAdaptersTest, AreNamedByEveryProtocol) {
  Start();
  const auto of = [&](const std::string& model, const std::string& task, const char* prompt) {
    v1::EncodeRequest request = RequestOf(model, task, {"The mill"});
    if (prompt != nullptr) request.set_prompt_name(prompt);
    return FloatsOf(Encode(request).output());
  };
  const auto http = [&](const char* path, nlohmann::json body) {
    nlohmann::json answer = Post(path, body);
    return (answer.is_array() ? answer[0] : answer["data"][0]["embedding"])
        .get<std::vector<float>>();
  };
  EXPECT_EQ(http("/v1/embeddings", {{"model", "bert"}, {"input", "The mill"}, {"task", "all"}}),
            of("bert", "all", nullptr));
  EXPECT_EQ(http("/embed", {{"model", "v3"}, {"inputs", "The mill"}, {"task", "retrieval.query"}}),
            of("v3", "retrieval.query", nullptr));
  // A role without a prompt of its own leaves the task's in place.
  EXPECT_EQ(http("/v1/embeddings", {{"model", "v3"},
                                    {"input", "The mill"},
                                    {"task", "retrieval.query"},
                                    {"input_type", "query"}}),
            of("v3", "retrieval.query", nullptr));
  // As Jina's own API spells tasks.
  for (const auto& [end, prompt] : {std::pair{"query", "query"}, {"passage", "document"}}) {
    EXPECT_EQ(
        http("/v1/embeddings",
             {{"model", "v5"}, {"input", "The mill"}, {"task", "retrieval." + std::string(end)}}),
        of("v5", "retrieval", prompt));
  }
  EXPECT_EQ(http("/v1/embeddings", {{"model", "bare"}, {"input", "The mill"}, {"task", "embed"}}),
            of("bare", "", nullptr));
  EXPECT_EQ(Post("/v1/embeddings", {{"model", "v5"}, {"input", "a"}})["error"]["param"], "task");
  EXPECT_EQ(
      Post("/v1/embeddings", {{"model", "v5"}, {"input", "a"}, {"task", 1}})["error"]["param"],
      "task");

  auto stub = inference::GRPCInferenceService::NewStub(channel_);
  grpc::ClientContext context;
  inference::ModelInferRequest request;
  request.set_model_name("bert");
  auto* const input = request.add_inputs();
  input->set_name("text");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->mutable_contents()->add_bytes_contents("The mill");
  (*request.mutable_parameters())["task"].set_string_param("some");
  inference::ModelInferResponse response;
  const grpc::Status status = stub->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::vector<float> expected = of("bert", "some", nullptr);
  ASSERT_EQ(response.raw_output_contents_size(), response.outputs_size());
  EXPECT_EQ(response.raw_output_contents(0),
            std::string(reinterpret_cast<const char*>(expected.data()), 4 * expected.size()));
}

TEST_F(ServerAdaptersTest, AreListedAndUnknownOnesRefused) {
  Start();
  const grpc::Status unknown = Try(RequestOf("bert", "al", {"a"}));
  EXPECT_EQ(Outcome(unknown), "INVALID_ARGUMENT INVALID_FIELD task");
  EXPECT_EQ(unknown.error_message(),
            "task: is not a task of this model; known are \"all\", \"some\"");
  EXPECT_THAT(Try(RequestOf("bare", "all", {"a"})).error_message(), HasSubstr("it has none"));
  EXPECT_THAT(Try(RequestOf("v5", "", {"a"})).error_message(), HasSubstr("this model needs one"));
  EXPECT_THAT(DescribeModel("bert").tasks(), ElementsAre("all", "some"));
  EXPECT_FALSE(DescribeModel("v3").needs_task());
  EXPECT_TRUE(DescribeModel("v5").needs_task());
  EXPECT_EQ(DescribeModel("bare").tasks_size(), 0);
  EXPECT_GT(DescribeModel("bert").weight_bytes(), DescribeModel("bare").weight_bytes());
}

TEST_F(ServerAdaptersTest, RerankTakesATask) {
  Start();
  const auto rows = [&](const std::string& role, const std::string& text, const std::string& task) {
    v1::EncodeRequest request = RequestOf("multi", task, {text});
    request.set_prompt_name(role);
    const v1::Tensor output = Encode(request).output();
    return std::pair(FloatsOf(output), static_cast<size_t>(output.shape(1)));
  };
  std::vector<float> scores;
  for (const std::string task : {"", "all"}) {
    const auto [query, width] = rows("query", "the mill", task);
    const std::vector<float> document = rows("document", "a river", task).first;
    double expected = 0;
    for (size_t q = 0; q < query.size(); q += width) {
      double most = -1e9;
      for (size_t d = 0; d < document.size(); d += width) {
        most = std::max(most, std::inner_product(&query[q], &query[q] + width, &document[d], 0.0));
      }
      expected += most;
    }
    v1::RerankRequest request;
    request.set_model("multi");
    request.set_query("the mill");
    request.add_documents("a river");
    request.set_task(task);
    scores.push_back(Rerank(request).results(0).score());
    EXPECT_NEAR(scores.back(), expected, 2e-5);
    const nlohmann::json answer = Post(
        "/v1/rerank",
        {{"model", "multi"}, {"query", "the mill"}, {"task", task}, {"documents", {"a river"}}});
    EXPECT_FLOAT_EQ(answer["results"][0]["relevance_score"].get<float>(), scores.back());
  }
  EXPECT_GT(std::abs(scores[0] - scores[1]), 1e-3);
  v1::RerankRequest unknown;
  unknown.set_model("multi");
  unknown.set_query("a");
  unknown.add_documents("b");
  unknown.set_task("none");
  EXPECT_THAT(Try(unknown).error_message(), HasSubstr("task: is not a task of this model"));
}

}  // namespace
}  // namespace castor::testing
