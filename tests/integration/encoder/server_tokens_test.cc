// Tokenize and Detokenize over a socket, by the tokenizers that real libraries wrote; their ids are
// those of Encode. tests/clients/token_peers.py compares them with the crate's own package.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

class ServerTokensTest : public ServerTest {
 protected:
  void SetUp() override {
    const std::string golden = CASTOR_GOLDEN_ENCODER;
    StartReal({{"bert", golden + "/heads/cross_encoder"},
               {"qwen", golden + "/directories/qwen3-rerank"}});
  }

  template <typename Request, typename Response>
  Response Ask(grpc::Status (v1::EncoderService::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
               const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (encoder_.get()->*method)(&context, request, &response);
    outcome_ = Outcome(status);
    message_ = status.error_message();
    return response;
  }

  v1::TokenizeResponse Tokenize(const v1::TokenizeRequest& request) {
    return Ask(&v1::EncoderService::Stub::Tokenize, request);
  }
  v1::DetokenizeResponse Detokenize(const v1::DetokenizeRequest& request) {
    return Ask(&v1::EncoderService::Stub::Detokenize, request);
  }

  std::string outcome_, message_;
};

v1::TokenizeRequest TokenizeOf(const std::vector<std::string>& texts, const char* model = "bert") {
  v1::TokenizeRequest request;
  request.set_model(model);
  for (const std::string& text : texts) request.mutable_texts()->add_texts(text);
  return request;
}

TEST_F(ServerTokensTest, OffsetsCutTheTextsIntoTheirTokens) {
  const std::string text = "A b\u00e4r \u2014 and\tb";
  for (const char* model : {"bert", "qwen"}) {
    SCOPED_TRACE(model);
    v1::TokenizeRequest request = TokenizeOf({text, "", "b"}, model);
    request.mutable_texts()->add_pairs("b a");
    request.mutable_texts()->add_pairs("");
    request.mutable_texts()->add_pairs("\u00e4");
    request.set_return_tokens(true);
    request.set_request_id("id");
    const v1::TokenizeResponse response = Tokenize(request);
    ASSERT_EQ(outcome_, "OK") << message_;
    EXPECT_EQ(response.request_id(), "id");
    EXPECT_EQ(response.model(), model);
    ASSERT_EQ(response.lengths_size(), 3);
    ASSERT_EQ(response.truncated_size(), 3);
    const int tokens = response.ids_size();
    for (const int size :
         {response.type_ids_size(), response.special_size(), response.pair_size(),
          response.byte_begins_size(), response.byte_ends_size(), response.character_begins_size(),
          response.character_ends_size(), response.tokens_size()}) {
      ASSERT_EQ(size, tokens);
    }
    int at = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(response.truncated(i));
      for (const int end = at + static_cast<int>(response.lengths(i)); at < end; ++at) {
        const std::string& whole =
            response.pair(at) ? request.texts().pairs(i) : request.texts().texts(i);
        const auto characters = [&](int64_t bytes) {
          return std::count_if(whole.begin(), whole.begin() + bytes,
                               [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
        };
        ASSERT_LE(response.byte_begins(at), response.byte_ends(at));
        ASSERT_LE(response.byte_ends(at), std::ssize(whole));
        EXPECT_EQ(response.character_begins(at), characters(response.byte_begins(at)));
        EXPECT_EQ(response.character_ends(at), characters(response.byte_ends(at)));
        EXPECT_EQ(response.special(at), response.byte_ends(at) == 0);
        EXPECT_NE(response.tokens(at), "");
      }
    }
    EXPECT_EQ(at, tokens);
  }
}

// Encode computes as many tokens, and the same ones.
TEST_F(ServerTokensTest, IdsAreThoseThatEncodeComputes) {
  v1::TokenizeRequest request =
      TokenizeOf({"who builds a dam", std::string(4000, 'a') + " b c d", ""});
  request.set_truncate(true);
  request.set_max_tokens(9);
  const v1::TokenizeResponse tokens = Tokenize(request);
  ASSERT_EQ(outcome_, "OK") << message_;
  const auto encode = [&](v1::EncodeRequest encode) {
    encode.set_model("bert");
    encode.set_output(v1::LOGITS);
    encode.set_max_tokens(9);
    return Ask(&v1::EncoderService::Stub::Encode, encode);
  };
  v1::EncodeRequest texts, ids;
  *texts.mutable_texts() = request.texts();
  *ids.mutable_tokens()->mutable_ids() = tokens.ids();
  *ids.mutable_tokens()->mutable_type_ids() = tokens.type_ids();
  *ids.mutable_tokens()->mutable_lengths() = tokens.lengths();
  const v1::EncodeResponse of_texts = encode(texts);
  EXPECT_EQ(of_texts.output().raw(), encode(ids).output().raw());
  ASSERT_EQ(outcome_, "OK") << message_;
  EXPECT_EQ(std::vector<bool>(tokens.truncated().begin(), tokens.truncated().end()),
            std::vector<bool>(of_texts.truncated().begin(), of_texts.truncated().end()));
  request.clear_truncate();
  request.clear_max_tokens();
  EXPECT_GE(Tokenize(request).lengths(1), tokens.lengths(1));
  request.set_add_special_tokens(false);
  const v1::TokenizeResponse bare = Tokenize(request);
  EXPECT_EQ(std::count(bare.special().begin(), bare.special().end(), true), 0);
  EXPECT_EQ(bare.lengths(2), 0);
}

TEST_F(ServerTokensTest, IdsBecomeTextsAgain) {
  const std::vector<std::string> texts = {"a b", "", "b \u00e4 b"};
  const v1::TokenizeResponse tokens = Tokenize(TokenizeOf(texts, "qwen"));
  v1::DetokenizeRequest request;
  request.set_model("qwen");
  request.set_request_id("back");
  *request.mutable_tokens()->mutable_ids() = tokens.ids();
  *request.mutable_tokens()->mutable_lengths() = tokens.lengths();
  request.set_skip_special_tokens(true);
  const v1::DetokenizeResponse response = Detokenize(request);
  ASSERT_EQ(outcome_, "OK") << message_;
  EXPECT_EQ(response.request_id(), "back");
  EXPECT_EQ(std::vector<std::string>(response.texts().begin(), response.texts().end()), texts);
}

// Much work and a small answer: to keep the end of a text, all of it is read.
v1::TokenizeRequest HugeRequest(size_t texts, size_t bytes = 1 << 20) {
  std::string text;
  while (text.size() < bytes) text += "a b ";
  v1::TokenizeRequest request = TokenizeOf(std::vector<std::string>(texts, text));
  request.set_truncate(true);
  request.set_truncation_side(v1::LEFT);
  request.set_max_tokens(9);
  return request;
}

TEST_F(ServerTokensTest, WhatMissesItsDeadlineOrIsCancelledStops) {
  const v1::TokenizeRequest huge = HugeRequest(12);
  v1::TokenizeResponse response;
  grpc::ClientContext hurried;
  hurried.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  EXPECT_EQ(encoder_->Tokenize(&hurried, huge, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(AwaitNoBytes());
  v1::TokenizeRequest own = huge;
  own.set_timeout_ms(100);
  Tokenize(own);
  EXPECT_EQ(outcome_, "DEADLINE_EXCEEDED DEADLINE_EXCEEDED") << message_;

  grpc::ClientContext left;
  grpc::Status status;
  std::thread caller([&] { status = encoder_->Tokenize(&left, huge, &response); });
  EXPECT_TRUE(Await([&] { return server_->engine().stats().load.inflight_requests == 1; }));
  left.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitNoBytes());
  Tokenize(TokenizeOf({"a b"}));
  EXPECT_EQ(outcome_, "OK") << message_;
}

TEST_F(ServerTokensTest, DrainAnswersWhatWasAdmitted) {
  std::atomic<int> answered = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (;;) {
        grpc::ClientContext context;
        v1::TokenizeResponse response;
        const grpc::Status status =
            encoder_->Tokenize(&context, HugeRequest(1, 1 << 17), &response);
        if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return;
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_TRUE(response.truncated(0));
        ++answered;
      }
    });
  }
  EXPECT_TRUE(Await([&] { return answered > 1; }));
  EXPECT_TRUE(server_->Drain());
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ServerTokensTest, RefusalsNameTheField) {
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  const auto refusal = [&](auto change) {
    v1::TokenizeRequest request = TokenizeOf({"a"});
    change(&request);
    Tokenize(request);
    return outcome_;
  };
  using T = v1::TokenizeRequest;
  EXPECT_EQ(refusal([](T* r) { r->clear_texts(); }), invalid + "texts.texts");
  EXPECT_EQ(refusal([](T* r) { r->mutable_texts()->add_texts(std::string(2 << 20, 'a')); }),
            invalid + "texts.texts[1]");
  EXPECT_EQ(refusal([](T* r) { r->set_max_tokens(3); }), invalid + "max_tokens");
  EXPECT_EQ(refusal([](T* r) {
              r->set_truncate(true);
              r->set_max_tokens(1);
            }),
            invalid + "max_tokens");
  EXPECT_EQ(refusal([](T* r) { r->set_prompt_name("nobody"); }), invalid + "prompt_name");
  EXPECT_EQ(refusal([](T* r) { r->set_truncation_side(static_cast<v1::TruncationSide>(9)); }),
            invalid + "truncation_side");
  EXPECT_EQ(refusal([](T* r) { r->set_model("nobody"); }), "NOT_FOUND MODEL_NOT_FOUND");

  const auto bad = [&](auto change) {
    v1::DetokenizeRequest request;
    request.set_model("bert");
    request.mutable_tokens()->add_ids(1);
    change(&request);
    Detokenize(request);
    return outcome_;
  };
  using D = v1::DetokenizeRequest;
  EXPECT_EQ(bad([](D* r) { r->clear_tokens(); }), invalid + "tokens.ids");
  EXPECT_EQ(bad([](D* r) { r->mutable_tokens()->add_ids(-1); }), invalid + "tokens.ids[1]");
  EXPECT_EQ(bad([](D* r) { r->mutable_tokens()->add_ids(int64_t{1} << 40); }),
            invalid + "tokens.ids[1]");
  EXPECT_EQ(bad([](D* r) { r->mutable_tokens()->add_lengths(2); }), invalid + "tokens.lengths");
  EXPECT_EQ(bad([](D* r) { r->mutable_tokens()->add_lengths(-1); }), invalid + "tokens.lengths[0]");
  const std::vector<int64_t> ids((1 << 20) + 1, 1);
  EXPECT_EQ(bad([&](D* r) { r->mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end()); }),
            invalid + "tokens.ids");
}

}  // namespace
}  // namespace castor::testing
