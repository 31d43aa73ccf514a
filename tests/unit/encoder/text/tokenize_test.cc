// The charge of tokenizing, and the answers.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/model.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kSentence = "\xef\xb7\xba";  // one sign, 18 characters when normalized

// A token for each character.
constexpr std::string_view kCharacters = R"({"version": "1.0", "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated",
                      "invert": false},
    "model": {"type": "WordLevel", "vocab": {"<0x0A>": 0}, "unk_token": "<0x0A>"}})";

class TokenizeTest : public testing::Test {
 protected:
  void SetUp() override {
    const TinyModel files;
    WriteFile(files / "tokenizer.json", std::string(kCharacters));
    WriteFile(files / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
    auto model = files.Load();
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  static EncodeRequest RequestOf(std::vector<std::string_view> texts) {
    EncodeRequest request;
    request.input.emplace<TextInput>().texts = std::move(texts);
    request.truncate = false;
    request.instead = TokenizeOnly{.return_tokens = true};
    return request;
  }

  int64_t Estimate(const EncodeRequest& request) const {
    return model_->EstimateTokenizedBytes(request);
  }

  absl::StatusOr<Tokenized> Tokenize(const EncodeRequest& request) const {
    Tokenized out;
    const auto done = model_->TokenizeSome(request, {}, &out);
    if (!done.ok()) return done.status();
    EXPECT_TRUE(*done);
    return out;
  }

  std::shared_ptr<Model> model_;
};

TEST_F(TokenizeTest, AnAnswerIsNoLargerThanItsCharge) {
  std::mt19937 rng(TestSeed());
  const auto below = [&](int end) { return std::uniform_int_distribution(0, end - 1)(rng); };
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> texts(1 + static_cast<size_t>(below(4)));
    for (std::string& text : texts) {
      for (int n = below(30); n > 0; --n) text += below(9) == 0 ? kSentence : "x";
    }
    const EncodeRequest request = RequestOf({texts.begin(), texts.end()});
    const auto tokenized = Tokenize(request);
    if (!tokenized.ok()) {
      EXPECT_EQ(ReasonOf(tokenized.status()), Reason::kInvalidField) << tokenized.status();
    } else {
      EXPECT_LE(tokenized->size_bytes(), Estimate(request));
    }
  }
  const auto one = Tokenize(RequestOf({kSentence}));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->ids.size(), 18u);
  std::string many;
  for (int i = 0; i < 100; ++i) many += kSentence;
  EXPECT_EQ(FieldOf(Tokenize(RequestOf({"x", many})).status()).value_or(""), "texts.texts[1]");
}

TEST_F(TokenizeTest, WhatIsCutIsChargedForWhatIsKept) {
  const std::string text(10'000, 'x');
  EncodeRequest request = RequestOf({text});
  const int64_t whole = Estimate(request);
  EXPECT_GE(whole, 10'000 * Tokenized::kBytesPerToken);
  request.truncate = true;
  request.max_tokens = 9;
  EXPECT_LT(Estimate(request), whole / 10);
  EXPECT_EQ(Tokenize(request)->ids.size(), 9u);
}

}  // namespace
}  // namespace castor::encoder
