// The answer cache over sockets: random requests against a server that computes all of them, every
// protocol, and what its users see of it.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/model.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tei/v1/tei.grpc.pb.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/seeded.h"

namespace castor::testing {
namespace {

constexpr int64_t kRoom = int64_t{4} << 20;
constexpr char kFirst[] = "the cat sat on the mat";

class ServerCacheTest : public ServerTest, protected Seeded {
 protected:
  void StartModels(int64_t room) {
    const std::string golden = CASTOR_GOLDEN_ENCODER;
    EngineOptions engine;
    engine.answer_cache = room;
    StartReal({{"bert", golden + "/tiny_bert"},
               {"bge_m3", golden + "/heads/bge_m3"},
               {"labels", golden + "/heads/bert_sequences"},
               {"pairs", golden + "/heads/cross_encoder"},
               {"late", golden + "/heads/colbert_pylate"}},
              TestOptionsWithMetrics(), engine);
  }

  double Hits(const std::string& model) const { return Count(model, "hit"); }
  double Misses(const std::string& model) const { return Count(model, "miss"); }
  double Count(const std::string& model, const std::string& result) const {
    return Metric("castor_answer_cache_requests_total{model=\"" + model + "\",result=\"" + result +
                  "\"}");
  }

  // A request for any model, with any of the options that it has.
  v1::EncodeRequest RandomRequest() {
    static const std::vector<std::string> kTexts = {kFirst,  "a dog", "dam", "who builds a dam?",
                                                    "A dog", ""};
    v1::EncodeRequest request;
    const bool bge = Uniform(0, 2) == 0;
    const bool labels = !bge && Uniform(0, 2) == 0;
    request.set_model(bge ? "bge_m3" : labels ? "labels" : "bert");
    for (int i = UpTo(2); i > 0; --i) {
      request.mutable_texts()->add_texts(kTexts[Uniform(0, std::ssize(kTexts) - 1)]);
    }
    std::vector<v1::EncodeOutput> outputs = {v1::POOLED, v1::TOKEN_EMBEDDINGS};
    if (bge) outputs.push_back(v1::SPARSE);
    if (labels) outputs.insert(outputs.end(), {v1::LOGITS, v1::SCORES});
    std::shuffle(outputs.begin(), outputs.end(), random_);
    outputs.resize(UpTo(2));
    for (const v1::EncodeOutput output : outputs) request.add_outputs(output);
    const bool pools = std::ranges::count(outputs, v1::POOLED) > 0;
    const bool vectors = pools || std::ranges::count(outputs, v1::TOKEN_EMBEDDINGS) > 0;
    if (pools && Uniform(0, 2) == 0) {
      request.set_pooling(Uniform(0, 1) == 0 ? v1::CLS : v1::MAXIMUM);
    }
    if (vectors && Uniform(0, 2) == 0) request.set_normalize(Uniform(0, 1) == 0);
    if (vectors && Uniform(0, 2) == 0) request.set_dimensions(8 * UpTo(2));
    if (vectors && Uniform(0, 2) == 0) {
      request.set_output_type(Uniform(0, 1) == 0 ? v1::EncodeRequest::FLOAT16
                                                 : v1::EncodeRequest::UBINARY);
    }
    if (Uniform(0, 2) == 0) request.set_max_tokens(static_cast<int32_t>(Uniform(4, 6)));
    if (Uniform(0, 3) == 0) request.set_prompt("query: ");
    if (pools && Uniform(0, 3) == 0) {
      v1::Spans::Range* const range = request.mutable_spans()->add_ranges();
      range->set_begin(0);
      range->set_end(Uniform(1, 2));
      request.mutable_spans()->set_unit(v1::Spans::TOKENS);
    }
    return request;
  }

  // All of an answer but its reports, or the error.
  std::string AnswerTo(const v1::EncodeRequest& request, bool* cached) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    *cached = response.batch().cached();
    EXPECT_EQ(response.batch().requests(), status.ok() && !*cached ? 1 : 0);
    EXPECT_EQ(response.kernel().device(), status.ok() ? "cpu" : "");
    response.clear_kernel();
    response.clear_timing();
    response.clear_batch();
    response.clear_memory();
    return Outcome(status) + response.SerializeAsString();
  }
};

// Whatever is asked in whatever order, an answer is the one that is computed without a cache.
TEST_F(ServerCacheTest, AnswersAreThoseThatAreComputed) {
  StartModels(kRoom);
  std::map<std::string, std::pair<v1::EncodeRequest, std::string>> answers;
  int hits = 0;
  int answered = 0;
  for (int i = 0; i < Rounds(8000); ++i) {
    const v1::EncodeRequest request = RandomRequest();
    bool cached = false;
    const std::string answer = AnswerTo(request, &cached);
    hits += cached;
    answered += answer.starts_with("OK") ? 1 : 0;
    const auto [at, is_new] =
        answers.try_emplace(request.SerializeAsString(), std::pair(request, answer));
    ASSERT_EQ(at->second.second, answer) << request.ShortDebugString();
  }
  EXPECT_GT(hits, Rounds(8000) / 10);
  EXPECT_GT(answered, Rounds(8000) / 4 * 3);
  EXPECT_EQ(Hits("bert") + Hits("bge_m3") + Hits("labels"), hits);
  StartModels(0);
  EXPECT_EQ(Hits("bert"), -1) << "no series without a cache";
  for (const auto& [key, known] : answers) {
    bool cached = false;
    ASSERT_EQ(AnswerTo(known.first, &cached), known.second) << known.first.ShortDebugString();
    ASSERT_FALSE(cached);
  }
}

TEST_F(ServerCacheTest, AnswersSayThatTheyCameFromTheCache) {
  StartModels(kRoom);
  v1::EncodeRequest request = EncodeOf({kFirst});
  request.set_model("bert");
  request.set_request_id("1");
  const v1::EncodeResponse first = Encode(request);
  EXPECT_FALSE(first.batch().cached());
  request.set_request_id("2");
  const v1::EncodeResponse second = Encode(request);
  EXPECT_TRUE(second.batch().cached());
  EXPECT_EQ(second.request_id(), "2");
  EXPECT_EQ(second.output().raw(), first.output().raw());
  EXPECT_EQ(second.kernel().backend(), first.kernel().backend());
  EXPECT_TRUE(second.kernel().has_vanilla());
  EXPECT_EQ(second.timing().compute_us(), 0);
  EXPECT_GT(second.timing().total_us(), 0);
  EXPECT_EQ(second.memory().workspace_bytes(), 0);
  EXPECT_EQ(Hits("bert"), 1);
  EXPECT_EQ(Misses("bert"), 1);
  EXPECT_GT(Metric("castor_answer_cache_bytes{model=\"bert\"}"), first.output().raw().size());
  EXPECT_EQ(Metric("castor_answer_cache_bytes{model=\"late\"}"), 0);
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(ServerCacheTest, StreamsOfNoTenantShareWithItsCalls) {
  StartModels(kRoom);
  v1::EncodeRequest request = EncodeOf({kFirst});
  request.set_model("bert");
  for (const bool cached : {false, true}) {
    grpc::ClientContext context;
    const auto stream = encoder_->EncodeStream(&context);
    v1::EncodeResponse response;
    ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_EQ(response.batch().cached(), cached);
    stream->WritesDone();
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_TRUE(stream->Finish().ok());
  }
  EXPECT_TRUE(Encode(request).batch().cached());
}

TEST_F(ServerCacheTest, RerankingIsCachedAndReturnsItsOwnDocuments) {
  StartModels(kRoom);
  for (const char* model : {"pairs", "late"}) {
    v1::RerankRequest request;
    request.set_model(model);
    request.set_query("who builds a dam?");
    for (const char* text : {"a dog", "the dam", kFirst}) request.add_documents(text);
    const auto rerank = [&] {
      grpc::ClientContext context;
      v1::RerankResponse response;
      EXPECT_TRUE(encoder_->Rerank(&context, request, &response).ok());
      return response;
    };
    const v1::RerankResponse first = rerank();
    EXPECT_FALSE(first.batch().cached());
    request.set_return_documents(true);
    request.set_top_n(2);
    const v1::RerankResponse second = rerank();
    EXPECT_TRUE(second.batch().cached());
    ASSERT_EQ(second.results_size(), 2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(second.results(i).logit(), first.results(i).logit());
      EXPECT_EQ(second.results(i).score(), first.results(i).score());
      EXPECT_EQ(second.results(i).document(), request.documents(second.results(i).index()));
    }
    EXPECT_EQ(second.token_counts_size(), 3);
    request.set_query("who builds a dog?");
    EXPECT_FALSE(rerank().batch().cached());
  }
}

TEST_F(ServerCacheTest, OtherProtocolsShareIt) {
  StartModels(kRoom);
  v1::EncodeRequest request = EncodeOf({kFirst});
  request.set_model("bert");
  request.set_output(v1::POOLED);
  (void)Encode(request);
  const auto oip = inference::GRPCInferenceService::NewStub(channel_);
  for (const bool cached : {false, true}) {
    inference::ModelInferRequest infer;
    infer.set_model_name("bert");
    auto* const input = infer.add_inputs();
    input->set_name("text");
    input->set_datatype("BYTES");
    input->add_shape(1);
    input->add_shape(1);
    input->mutable_contents()->add_bytes_contents("a dog");
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const grpc::Status status = oip->ModelInfer(&context, infer, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.parameters().contains("cached"), cached);
  }
  inference::ModelStatisticsRequest asked;
  asked.set_name("bert");
  grpc::ClientContext context;
  inference::ModelStatisticsResponse statistics;
  ASSERT_TRUE(oip->ModelStatistics(&context, asked, &statistics).ok());
  EXPECT_EQ(statistics.model_stats(0).execution_count(), 1U) << "nothing ran for the second";
  EXPECT_EQ(statistics.model_stats(0).inference_stats().success().count(), 2U);
}

// Their answers depend on more than ids, or are not those of an exact kernel.
TEST_F(ServerCacheTest, OtherRequestsAreNotCached) {
  StartModels(kRoom);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(Encode([] {
                   v1::EncodeRequest request = EncodeOf({kFirst});
                   request.set_model("bert");
                   request.mutable_clustered()->set_clusters(2);
                   return request;
                 }())
                     .batch()
                     .cached());
    v1::EncodeRequest embeddings;
    embeddings.set_model("bert");
    v1::Tensor* const values = embeddings.mutable_embeddings()->mutable_values();
    const auto width = static_cast<int64_t>(server_->engine().models()->front().hidden_size);
    values->set_dtype(v1::FLOAT32);
    values->mutable_shape()->Add(2);
    values->mutable_shape()->Add(width);
    values->set_raw(std::string(static_cast<size_t>(2 * width) * sizeof(float), '\0'));
    EXPECT_FALSE(Encode(embeddings).batch().cached());
    AttendCall attend;
    ASSERT_TRUE(attend.Run(*attention_, AttendOf(3)).ok());
    EXPECT_FALSE(attend.response.batch().cached());
    grpc::ClientContext context;
    v1::TokenizeRequest tokenize;
    tokenize.set_model("bert");
    tokenize.mutable_texts()->add_texts(kFirst);
    v1::TokenizeResponse tokens;
    ASSERT_TRUE(encoder_->Tokenize(&context, tokenize, &tokens).ok());
  }
  EXPECT_EQ(Hits("bert") + Misses("bert"), 0);
  v1::EncodeRequest automatic = EncodeOf({kFirst});
  automatic.set_model("bert");
  automatic.mutable_automatic();
  EXPECT_FALSE(Encode(automatic).batch().cached());
  EXPECT_TRUE(Encode(automatic).batch().cached()) << "it chose the exact kernel";
}

}  // namespace
}  // namespace castor::testing
