// tei.v1 over a socket, beside castor.v1 on the same server: its defaults, codes, orders and
// headers. What models compute is compared with transformers (tests/golden/encoder/make_heads.py).

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "server/tei/messages.h"
#include "tests/integration/tei/fixture.h"

namespace castor::testing {
namespace {

using grpc::health::v1::HealthCheckResponse;
using nlohmann::json;
using ::testing::StartsWith;

double Norm(const tei::EmbedResponse& response) {
  double sum = 0;
  for (const float x : response.embeddings()) sum += double{x} * x;
  return std::sqrt(sum);
}

TEST_F(ServerTeiTest, EmbedsAsTheProtocolSays) {
  Start({"tiny_bert"});
  const tei::InfoResponse info = Ask(*info_, &tei::Info::Stub::Info, {});
  EXPECT_EQ(info.model_id(), "tiny_bert");
  EXPECT_EQ(info.model_dtype(), "float32");
  EXPECT_EQ(info.model_type(), tei::MODEL_TYPE_EMBEDDING);
  EXPECT_EQ(info.max_client_batch_size(), 4096u);

  const tei::EmbedResponse usual = Embed(EmbedOf("cat"));
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_NEAR(Norm(usual), 1, 1e-5);
  EXPECT_EQ(usual.metadata().compute_chars(), 3u);
  EXPECT_GT(usual.metadata().compute_tokens(), 2u);
  EXPECT_GE(usual.metadata().total_time_ns(), usual.metadata().inference_time_ns());
  EXPECT_EQ(headers_["x-compute-type"], "gpu+optimized");
  EXPECT_EQ(headers_["x-compute-characters"], "3");
  EXPECT_EQ(headers_["x-compute-tokens"], std::to_string(usual.metadata().compute_tokens()));
  for (const char* name : {"x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time",
                           "x-inference-time"}) {
    EXPECT_FALSE(headers_[name].empty()) << name;
  }

  tei::EmbedRequest request = EmbedOf("cat");
  request.set_normalize(false);
  const tei::EmbedResponse raw = Embed(request);
  EXPECT_GT(std::abs(Norm(raw) - 1), 1e-3);
  request.set_normalize(true);
  request.set_dimensions(2);
  const tei::EmbedResponse cut = Embed(request);
  ASSERT_EQ(cut.embeddings_size(), 2);
  EXPECT_NEAR(Norm(cut), 1, 1e-5);
  EXPECT_NEAR(cut.embeddings(0) * raw.embeddings(1), cut.embeddings(1) * raw.embeddings(0), 1e-5);

  tei::EmbedAllRequest all;
  all.set_inputs("cat");
  const tei::EmbedAllResponse rows = Ask(*embed_, &tei::Embed::Stub::EmbedAll, all);
  EXPECT_EQ(rows.token_embeddings_size(), static_cast<int>(usual.metadata().compute_tokens()));
  EXPECT_EQ(rows.token_embeddings(0).embeddings_size(), usual.embeddings_size());
}

TEST_F(ServerTeiTest, RefusesInItsOwnWords) {
  Start({"tiny_bert"});
  const auto refusal = [&](const std::function<void(tei::EmbedRequest*)>& spoil) {
    tei::EmbedRequest request = EmbedOf("cat");
    spoil(&request);
    Embed(request);
    return Code(status_);
  };
  EXPECT_EQ(refusal([](auto* r) { r->clear_inputs(); }),
            "3 Input validation error: `inputs` cannot be empty");
  EXPECT_EQ(refusal([](auto* r) { r->set_dimensions(0); }), "3 dimensions: should be positive");
  EXPECT_TRUE(refusal([](auto* r) { r->set_dimensions(1 << 30); }).starts_with("3 dimensions"));
  EXPECT_TRUE(refusal([](auto* r) { r->set_prompt_name("?"); }).starts_with("3 prompt_name"));
  EXPECT_TRUE(refusal([](auto* r) {
                r->set_truncation_direction(static_cast<tei::TruncationDirection>(2));
              }).starts_with("3 truncation_direction"));
  const uint32_t limit = Ask(*info_, &tei::Info::Stub::Info, {}).max_input_length();
  std::string text;
  for (uint32_t i = 0; i < limit; ++i) text += "cat ";
  EXPECT_TRUE(refusal([&](auto* r) {
                r->set_inputs(text);
              }).starts_with("3 inputs[0]: is longer than " + std::to_string(limit) + " tokens"));
  const std::string blank(limit * 250 + 1, ' ');
  EXPECT_EQ(refusal([&](auto* r) { r->set_inputs(blank); }),
            "3 Input validation error: `inputs` must have less than " +
                std::to_string(limit * 250) +
                " characters. Given: " + std::to_string(limit * 250 + 1));
  EXPECT_TRUE(refusal([](auto* r) { r->set_inputs(std::string(2 << 20, 'a')); }).starts_with("3"));
  EXPECT_TRUE(refusal([](auto* r) { r->set_inputs(std::string(5 << 20, 'a')); }).starts_with("8"));
  EXPECT_EQ(CallRaw("/tei.v1.Embed/Embed", "\x0a\x01\xff").error_code(), grpc::INVALID_ARGUMENT);

  tei::EmbedRequest right = EmbedOf(text + "dog");
  right.set_truncate(true);
  tei::EmbedRequest left = right;
  left.set_truncation_direction(tei::TRUNCATION_DIRECTION_LEFT);
  const tei::EmbedResponse cut = Embed(right);
  EXPECT_EQ(cut.metadata().compute_tokens(), limit);
  EXPECT_NE(cut.embeddings(0), Embed(left).embeddings(0));

  // What the model is not.
  const std::string backend = "9 Backend error: Model is not ";
  Ask(*embed_, &tei::Embed::Stub::EmbedSparse, {});
  EXPECT_EQ(Code(status_), backend + "an embedding model with SPLADE pooling");
  Ask(*predict_, &tei::Predict::Stub::Predict, {});
  EXPECT_EQ(Code(status_), backend + "a classifier model");
  Rerank(RerankOf("a", {"b"}));
  EXPECT_EQ(Code(status_), backend + "a classifier model");
}

TEST_F(ServerTeiTest, PredictsWhatTransformersDoes) {
  Start({"bert_sequences", "cross_encoder", "splade_bert"});
  model_ = "bert_sequences";
  const json golden = json::parse(std::ifstream(kGolden + "heads/bert_sequences/expected.json"));
  int texts = 0;
  for (const json& row : golden["cases"]) {
    if (!row["pair"].is_null() || !row["text"].is_string() || row["text"] == "") continue;
    ++texts;
    for (const bool raw : {false, true}) {
      tei::PredictRequest request;
      request.set_inputs(row["text"]);
      request.set_raw_scores(raw);
      request.set_truncate(true);
      const auto response = Ask(*predict_, &tei::Predict::Stub::Predict, request);
      ASSERT_TRUE(status_.ok()) << status_.error_message();
      const std::vector<float> expected = row[raw ? "LOGITS" : "SCORES"][0];
      const std::vector<std::string> labels = {"calm", "\u00fcber", "stormy"};
      ASSERT_EQ(response.predictions_size(), 3);
      for (int i = 0; i < 3; ++i) {
        const tei::Prediction& one = response.predictions(i);
        const auto label = std::ranges::find(labels, one.label()) - labels.begin();
        ASSERT_LT(label, 3);
        EXPECT_NEAR(one.score(), expected[label], 1e-4);
        EXPECT_GE(response.predictions(std::max(i - 1, 0)).score(), one.score());
      }
    }
  }
  EXPECT_GT(texts, 2);
  tei::PredictPairRequest pair;
  Pair(pair);
  EXPECT_EQ(Code(status_), "3 inputs: must have one or two entries");
  for (int i = 0; i < 3; ++i) pair.add_inputs("a");
  Pair(pair);
  EXPECT_EQ(status_.error_code(), grpc::INVALID_ARGUMENT);
  Rerank(RerankOf("a", {"b"}));
  EXPECT_EQ(Code(status_), "9 Backend error: Model is not a re-ranker model");

  model_ = "splade_bert";
  tei::EmbedSparseRequest sparse;
  sparse.set_inputs("answers");
  const auto rows = Ask(*embed_, &tei::Embed::Stub::EmbedSparse, sparse);
  ASSERT_GT(rows.sparse_embeddings_size(), 1);
  for (int i = 1; i < rows.sparse_embeddings_size(); ++i) {
    EXPECT_LT(rows.sparse_embeddings(i - 1).index(), rows.sparse_embeddings(i).index());
    EXPECT_NE(rows.sparse_embeddings(i).value(), 0);
  }
}

TEST_F(ServerTeiTest, RanksInOneCallAndInAStream) {
  Start({"cross_encoder"});
  const std::vector<std::string> texts = {"the mill", "on y danse, l'\u00e9t\u00e9", "the mill"};
  tei::RerankRequest request = RerankOf("answers", texts);
  request.set_return_text(true);
  const tei::RerankResponse once = Rerank(request);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_EQ(once.ranks_size(), 3);
  std::vector<uint32_t> order;
  for (const tei::Rank& rank : once.ranks()) {
    order.push_back(rank.index());
    EXPECT_EQ(rank.text(), texts[rank.index()]);
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 2, 1}));  // of equal ones the first first
  EXPECT_NEAR(once.ranks(0).score(), 0.1158823, 1e-4);
  EXPECT_NEAR(once.ranks(2).score(), 0.0772159, 1e-4);
  EXPECT_EQ(once.metadata().compute_chars(), 3u * 7 + 8 + 8 + 17);

  request.set_raw_scores(true);
  request.set_return_text(false);
  const tei::RerankResponse raw = Rerank(request);
  EXPECT_NEAR(raw.ranks(2).score(), -2.4807906, 1e-4);
  EXPECT_FALSE(raw.ranks(0).has_text());

  const auto stream = [&](const std::vector<tei::RerankStreamRequest>& parts) {
    grpc::ClientContext context;
    tei::RerankResponse response;
    const auto writer = rerank_->RerankStream(&context, &response);
    for (const auto& part : parts) {
      if (!writer->Write(part)) break;
    }
    writer->WritesDone();
    status_ = writer->Finish();
    return response;
  };
  std::vector<tei::RerankStreamRequest> parts(3);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].set_query("answers");
    parts[i].set_text(texts[i]);
    parts[i].set_return_text(i == 0);
    parts[i].set_raw_scores(i != 0);
  }
  const tei::RerankResponse streamed = stream(parts);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(streamed.ranks(i).text(), once.ranks(i).text());
    EXPECT_NEAR(streamed.ranks(i).score(), once.ranks(i).score(), 1e-6);
  }
  parts[1].set_query("The old mill by the river.");  // each its own
  EXPECT_NE(stream(parts).ranks(2).score(), once.ranks(2).score());

  stream({});
  EXPECT_EQ(status_.error_code(), grpc::INVALID_ARGUMENT);
  stream(std::vector<tei::RerankStreamRequest>(4097, parts[0]));
  EXPECT_EQ(status_.error_code(), grpc::INVALID_ARGUMENT) << status_.error_message();
  tei::RerankStreamRequest large = parts[0];
  large.set_text(std::string(3 << 20, 'a'));
  stream({large, large});
  EXPECT_EQ(status_.error_code(), grpc::RESOURCE_EXHAUSTED) << status_.error_message();
  stream({parts[0], {}});
  EXPECT_EQ(Code(status_), "3 Input validation error: `inputs` cannot be empty");
  Rerank(RerankOf("a", {}));
  EXPECT_TRUE(Code(status_).starts_with("3 texts: needs at least one"));
  Rerank(RerankOf("a", std::vector<std::string>(4097, "b")));
  EXPECT_TRUE(Code(status_).starts_with("3 texts: ")) << status_.error_message();
  std::string words;
  for (int i = 0; i < 50; ++i) words += "answers ";
  Rerank(RerankOf("a", {"b", words}));
  EXPECT_TRUE(Code(status_).starts_with("3 texts[1]: is longer than"));
}

TEST_F(ServerTeiTest, CutsTextsIntoTokensAndBack) {
  Start({"tiny_bert"});
  tei::EncodeRequest request;
  request.set_inputs("cat \u00e4 [SEP]");
  const auto plain = Ask(*tokenize_, &tei::Tokenize::Stub::Tokenize, request);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  for (const tei::SimpleToken& token : plain.tokens()) {
    EXPECT_FALSE(token.special());
    ASSERT_TRUE(token.has_start());
    EXPECT_EQ(token.text(), request.inputs().substr(token.start(), token.stop() - token.start()));
  }
  EXPECT_EQ(plain.tokens(plain.tokens_size() - 1).text(), "[SEP]");  // one token, as in the text
  request.set_add_special_tokens(true);
  const auto framed = Ask(*tokenize_, &tei::Tokenize::Stub::Tokenize, request);
  ASSERT_EQ(framed.tokens_size(), plain.tokens_size() + 2);
  EXPECT_TRUE(framed.tokens(0).special());
  EXPECT_EQ(framed.tokens(0).text(), "[CLS]");
  EXPECT_FALSE(framed.tokens(0).has_start());

  tei::DecodeRequest ids;
  Ask(*tokenize_, &tei::Tokenize::Stub::Decode, ids);
  EXPECT_TRUE(Code(status_).starts_with("3 ids: needs at least one")) << status_.error_message();
  for (const tei::SimpleToken& token : framed.tokens()) ids.add_ids(token.id());
  const auto whole = Ask(*tokenize_, &tei::Tokenize::Stub::Decode, ids);
  EXPECT_TRUE(whole.text().starts_with("[CLS] cat")) << whole.text();
  ids.set_skip_special_tokens(true);
  EXPECT_TRUE(Ask(*tokenize_, &tei::Tokenize::Stub::Decode, ids).text().starts_with("cat"));
  ids.add_ids(1u << 31);
  Ask(*tokenize_, &tei::Tokenize::Stub::Decode, ids);
  EXPECT_TRUE(Code(status_).starts_with("3 ids[")) << status_.error_message();
}

TEST_F(ServerTeiTest, SeveralModelsNeedAChoice) {
  const std::vector<std::string> models = {"tiny_bert", "cross_encoder"};
  Start(models);
  Embed(EmbedOf("cat"));
  EXPECT_EQ(status_.error_code(), grpc::NOT_FOUND);
  EXPECT_NE(status_.error_message().find("--tei-model"), std::string::npos);
  EXPECT_EQ(Health("tei.v1.Info"), HealthCheckResponse::SERVING);
  model_ = "nobody";
  Embed(EmbedOf("cat"));
  EXPECT_EQ(status_.error_code(), grpc::NOT_FOUND);
  model_ = "tiny_bert";
  EXPECT_GT(Embed(EmbedOf("cat")).embeddings_size(), 0);

  server::ServerOptions options = TestOptions();
  options.tei_model = "cross_encoder";
  Start(models, options);
  model_ = "";
  EXPECT_EQ(Ask(*info_, &tei::Info::Stub::Info, {}).model_type(), tei::MODEL_TYPE_RERANKER);
  EXPECT_EQ(Health("tei.v1.Rerank"), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("tei.v1.Predict"), HealthCheckResponse::SERVING);
  EXPECT_NE(Health("tei.v1.Embed"), HealthCheckResponse::SERVING);
  model_ = "tiny_bert";
  EXPECT_EQ(Ask(*info_, &tei::Info::Stub::Info, {}).model_type(), tei::MODEL_TYPE_EMBEDDING);

  options.protocols.tei = false;
  Start(models, options);
  Embed(EmbedOf("cat"));
  EXPECT_EQ(status_.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_NE(Health("tei.v1.Info"), HealthCheckResponse::SERVING);
}

// ---- what a message makes the server do before it is admitted

// The query's characters are not counted for each text, nor any text before there are too many.
TEST_F(ServerTeiTest, MessagesOfManyElementsAreRefusedAtOnce) {
  Start({"cross_encoder"});
  tei::RerankRequest rerank = RerankOf(std::string(3 << 19, 'q'), {});
  for (int i = 0; i < 700'000; ++i) rerank.add_texts();
  rerank.set_truncate(true);
  Rerank(rerank);
  EXPECT_THAT(Code(status_), StartsWith("3 texts: ")) << "of 1.5 MiB and 700,000 texts";
  tei::PredictPairRequest pair;
  for (int i = 0; i < 1'000'000; ++i) pair.add_inputs();
  Pair(pair);
  EXPECT_THAT(Code(status_), StartsWith("3 inputs: "));
  tei::DecodeRequest ids;
  for (int i = 0; i < 4'000'000; ++i) ids.add_ids(1);
  Ask(*tokenize_, &tei::Tokenize::Stub::Decode, ids);
  EXPECT_THAT(Code(status_), StartsWith("3 ids: "));
  std::string unknown = "\x0a\x01q\x12\x01t";
  for (int i = 0; i < 2'000'000; ++i) unknown += "\x7b\x7c";  // groups, which are skipped
  EXPECT_TRUE(CallRaw("/tei.v1.Rerank/Rerank", unknown).ok());
}

TEST_F(ServerTeiTest, MoreCharactersThanTheirCountHolds) {
  tei::Metadata metadata;
  server::tei::Fill(EncodeResult(), int64_t{1} << 32, 0, &metadata);
  EXPECT_EQ(metadata.compute_chars(), std::numeric_limits<uint32_t>::max());
}

}  // namespace
}  // namespace castor::testing
