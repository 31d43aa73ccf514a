#include "engine/hf/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/encoder/model_files.h"

namespace castor::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Token ids of the tiny BERT's vocabulary: tests/golden/encoder/make_tiny_bert.py.
constexpr int64_t kUnk = 1, kCls = 2, kSep = 3;
constexpr int64_t kThe = 8, kCat = 9, kSat = 10, kS = 13;

class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = encoder::OpenTokenizer(encoder::GoldenDirectory() + "/tiny_bert/tokenizer.json");
    ASSERT_TRUE(opened.ok()) << opened.status();
    tokenizer_ = *std::move(opened);
  }

  bool Encode(std::string_view text, std::optional<std::string_view> pair = {},
              const EncodeOptions& options = {}) {
    ids_.clear();
    types_.clear();
    const auto cut = tokenizer_->Encode(text, pair, options, &ids_, &types_);
    EXPECT_TRUE(cut.ok()) << cut.status();
    return cut.value_or(false);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int64_t> ids_, types_;
};

TEST_F(TokenizerTest, EncodesTextsAndPairs) {
  EXPECT_FALSE(Encode("the CATS"));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kCat, kS, kSep));
  EXPECT_THAT(types_, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_FALSE(Encode("the", "cat"));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kSep, kCat, kSep));
  EXPECT_THAT(types_, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_FALSE(Encode(""));
  EXPECT_THAT(ids_, ElementsAre(kCls, kSep));
  EXPECT_FALSE(Encode("", ""));
  EXPECT_THAT(ids_, ElementsAre(kCls, kSep, kSep));
  EXPECT_FALSE(Encode(std::string_view()));
  EXPECT_THAT(ids_, ElementsAre(kCls, kSep));
}

TEST_F(TokenizerTest, ReadsMarkersAsTextUnlessAllowed) {
  Encode("[SEP]");
  EXPECT_THAT(ids_, ElementsAre(kCls, 5, 7, 6, kSep));  // "[", "sep", "]"
  Encode("[SEP]", {}, {.allow_special_tokens = true});
  EXPECT_THAT(ids_, ElementsAre(kCls, kSep, kSep));
  Encode("[SEP]");  // one call's policy does not carry over
  EXPECT_THAT(ids_, ElementsAre(kCls, 5, 7, 6, kSep));
}

// The file declares truncation to 5 and padding to 9.
TEST_F(TokenizerTest, IgnoresTheFilesTruncationAndPadding) {
  EXPECT_FALSE(Encode("the cat sat the cat sat the cat sat"));
  EXPECT_EQ(ids_.size(), 11u);
  EXPECT_FALSE(Encode("the"));
  EXPECT_EQ(ids_.size(), 3u);
}

TEST_F(TokenizerTest, CutsTheLongestFirst) {
  const auto encode = [&](std::string_view text, std::optional<std::string_view> pair,
                          int64_t max_tokens) {
    const bool cut = Encode(text, pair, {.max_tokens = max_tokens});
    return cut;
  };
  EXPECT_FALSE(encode("the cat sat", {}, 5));
  EXPECT_TRUE(encode("the cat sat mat", {}, 5));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kCat, kSat, kSep));
  EXPECT_TRUE(encode("the cat sat mat", {}, 2));
  EXPECT_THAT(ids_, ElementsAre(kCls, kSep));
  // Only the longer one is cut while that is enough ...
  EXPECT_TRUE(encode("the cat sat mat", "cat", 6));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kCat, kSep, kCat, kSep));
  // ... then the shorter gets half, rounded down.
  EXPECT_TRUE(encode("the cat sat", "the cat sat mat", 8));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kCat, kSep, kThe, kCat, kSat, kSep));
  EXPECT_TRUE(encode("the cat sat mat", "the cat sat", 8));
  EXPECT_THAT(ids_, ElementsAre(kCls, kThe, kCat, kSat, kSep, kThe, kCat, kSep));
}

TEST_F(TokenizerTest, RefusesARoomTooSmallForSpecialTokens) {
  EXPECT_FALSE(tokenizer_->Encode("the", {}, {.max_tokens = 1}, &ids_, &types_).ok());
}

TEST_F(TokenizerTest, TurnsInvalidTextIntoAnError) {
  EXPECT_FALSE(tokenizer_->Encode("\xff\xfe", {}, {}, &ids_, &types_).ok());
}

TEST_F(TokenizerTest, KnowsItsSpecialTokensAndIds) {
  EXPECT_EQ(tokenizer_->added_tokens(false), 2);
  EXPECT_EQ(tokenizer_->added_tokens(true), 3);
  EXPECT_EQ(tokenizer_->id_limit(), 25);
}

TEST_F(TokenizerTest, MayBeSharedByThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 200; ++i) {
        std::vector<int64_t> ids, types;
        const EncodeOptions options{.max_tokens = 16, .allow_special_tokens = t % 2 == 1};
        ASSERT_TRUE(tokenizer_->Encode("[SEP] zebra", {}, options, &ids, &types).ok());
        if (t % 2 == 1) {
          ASSERT_THAT(ids, ElementsAre(kCls, kSep, kUnk, kSep));
        } else {
          ASSERT_THAT(ids, ElementsAre(kCls, 5, 7, 6, kUnk, kSep));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerFileTest, NamesTheFileInErrors) {
  const TemporaryFolder folder;
  for (const std::string text : {"", "{}", "[", "{\"model\":{\"type\":\"Unheard\"}}", "\xff"}) {
    encoder::WriteFile(folder / "tokenizer.json", text);
    const absl::Status bad = encoder::OpenTokenizer(folder / "tokenizer.json").status();
    EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(bad.message()), HasSubstr("tokenizer.json")) << text;
  }
}

// RoBERTa's <mask> takes the space before it, which its post-processor leaves out again.
TEST(TokenizerFileTest, OffsetsLieBetweenCharacters) {
  const auto tokenizer = encoder::OpenTokenizer(encoder::GoldenDirectory() +
                                                "/directories/roberta-embed/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int64_t> ids, types;
  TokenOffsets offsets;
  for (const bool trim : {false, true}) {
    const EncodeOptions options = {.allow_special_tokens = true, .trim_offsets = trim};
    ASSERT_TRUE((*tokenizer)
                    ->Encode("\u00e9\u2028\u00a0<mask>\u00e9", {}, options, &ids, &types, &offsets)
                    .ok());
    EXPECT_THAT(offsets.bytes, testing::Contains(TokenOffsets::Bytes{7, 13}));
  }
}

// One word would take minutes, or tokens would differ from call to call.
TEST(TokenizerFileTest, RefusesModelsThatDoNotServe) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& model) {
    encoder::WriteFile(folder / "tokenizer.json", "{\"version\":\"1.0\",\"model\":" + model + "}");
    return std::string(encoder::OpenTokenizer(folder / "tokenizer.json").status().message());
  };
  const std::string pieces =
      R"({"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","vocab":{"u":0},)";
  EXPECT_EQ(message(pieces + R"("max_input_chars_per_word":1000})"), "");
  EXPECT_THAT(message(pieces + R"("max_input_chars_per_word":1001})"),
              HasSubstr("model.max_input_chars_per_word: is 1001"));
  const std::string pairs = R"({"type":"BPE","vocab":{"a":0},"merges":[],)";
  EXPECT_EQ(message(pairs + R"("dropout":null})"), "");
  EXPECT_EQ(message(pairs + R"("dropout":0.0})"), "");
  EXPECT_THAT(message(pairs + R"("dropout":0.1})"), HasSubstr("model.dropout"));
}

}  // namespace
}  // namespace castor::hf
