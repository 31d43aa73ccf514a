// Spans: what is refused, and which tokens characters and bytes become, with a prompt before the
// text, in pairs, and where a text is cut; and against looking at every token by itself.
#include "engine/encoder/text/spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/model.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Unit = Spans::Unit;
using Range = Spans::Range;

EncodeRequest TextsOf(std::vector<std::string_view> texts,
                      std::vector<std::string_view> pairs = {}) {
  EncodeRequest request;
  TextInput input;
  input.texts = std::move(texts);
  input.pairs = std::move(pairs);
  request.input = std::move(input);
  return request;
}

EncodeRequest With(EncodeRequest request, std::vector<Range> ranges,
                   std::optional<Unit> unit = std::nullopt) {
  request.spans = {.unit = unit, .ranges = std::move(ranges)};
  return request;
}

// "1-3", "2-2" for none, "1-3 cut".
std::vector<std::string> Words(const std::vector<PooledSpan>& spans) {
  std::vector<std::string> words;
  for (const PooledSpan& span : spans) {
    words.push_back(std::to_string(span.begin) + "-" + std::to_string(span.end) +
                    (span.truncated ? " cut" : ""));
  }
  return words;
}

class SpansTest : public testing::Test, protected Seeded {
 protected:
  void SetUp() override {
    Load([](TinyModel&) {});
  }

  void Load(const std::function<void(TinyModel&)>& edit) {
    TinyModel files;
    edit(files);
    auto model = files.Load();
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // The field that is refused; "" if none is. Whenever it is found out.
  std::string BadField(const EncodeRequest& request) {
    absl::Status status = model_->CheckInput(request, 8, 1 << 20);
    if (status.ok()) status = Prepare(request, *model_).status();
    if (status.ok()) return "";
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidField) << status;
    return FieldOf(status).value_or("?");
  }

  std::vector<std::string> Placed(const EncodeRequest& request) {
    EXPECT_TRUE(model_->CheckInput(request, 8, 1 << 20).ok());
    const auto prepared = Prepare(request, *model_);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? Words(prepared->spans) : std::vector<std::string>();
  }

  std::shared_ptr<Model> model_;
};

TEST_F(SpansTest, RefusesWhatIsNoRangeOfTheRequest) {
  const EncodeRequest text = TextsOf({"the cat"});
  EXPECT_EQ(BadField(With(text, {{0, 0, 7}})), "");
  EXPECT_EQ(BadField(With(text, {{0, 0, 7}, {1, 0, 1}})), "spans.ranges[1].sequence");
  EXPECT_EQ(BadField(With(text, {{-1, 0, 1}})), "spans.ranges[0].sequence");
  EXPECT_EQ(BadField(With(text, {{0, -1, 1}})), "spans.ranges[0].begin");
  EXPECT_EQ(BadField(With(text, {{0, 3, 3}})), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(text, {{0, 3, 2}})), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(text, {{0, 0, 8}})), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(text, {{0, 7, 8}})), "spans.ranges[0].end");
  for (const Unit unit : {Unit::kCharacters, Unit::kBytes, Unit::kTokens}) {
    EXPECT_EQ(BadField(With(text, {{0, INT64_MIN, INT64_MAX}}, unit)), "spans.ranges[0].begin");
    EXPECT_EQ(BadField(With(text, {{0, INT64_MAX, INT64_MIN}}, unit)), "spans.ranges[0].end");
    EXPECT_EQ(BadField(With(text, {{0, 0, INT64_MAX}}, unit)), "spans.ranges[0].end");
    EXPECT_EQ(BadField(With(text, {{0, INT64_MAX - 1, INT64_MAX}}, unit)), "spans.ranges[0].end");
    EXPECT_EQ(BadField(With(TextsOf({""}), {{0, 0, unit == Unit::kTokens ? 3 : 1}}, unit)),
              "spans.ranges[0].end");
  }
  EXPECT_EQ(BadField(With(text, {{0, 0, 1, true}})), "spans.ranges[0].pair");
  EXPECT_EQ(BadField(With(TextsOf({"a"}, {"b"}), {{0, 0, 1, true}}, Unit::kTokens)),
            "spans.ranges[0].pair");
  EXPECT_EQ(BadField(With(TextsOf({"a"}, {"bc"}), {{0, 0, 2, true}})), "");
  EXPECT_EQ(BadField(With(TextsOf({"a"}, {"bc"}), {{0, 0, 2}})), "spans.ranges[0].end");
  EncodeRequest rows = With(text, {{0, 0, 1}});
  rows.output = EncodeOutput::kTokenEmbeddings;
  EXPECT_EQ(BadField(rows), "spans");
}

TEST_F(SpansTest, BytesMustNotSplitACharacter) {
  const EncodeRequest text = TextsOf({"a\u00e9\u4f60"});  // 1, 2 and 3 bytes
  EXPECT_EQ(BadField(With(text, {{0, 0, 1}, {0, 1, 3}, {0, 3, 6}}, Unit::kBytes)), "");
  EXPECT_EQ(BadField(With(text, {{0, 0, 2}}, Unit::kBytes)), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(text, {{0, 2, 3}}, Unit::kBytes)), "spans.ranges[0].begin");
  EXPECT_EQ(BadField(With(text, {{0, 0, 7}}, Unit::kBytes)), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(text, {{0, 0, 3}})), "");
  EXPECT_EQ(BadField(With(text, {{0, 0, 4}})), "spans.ranges[0].end");
}

TEST_F(SpansTest, TokenIdsHaveTokensOnly) {
  EncodeRequest request;
  request.input = TokenInput{.ids = std::vector<int64_t>(7, 8), .type_ids = {}, .lengths = {3, 4}};
  EXPECT_EQ(BadField(With(request, {{0, 0, 1}}, Unit::kCharacters)), "spans.unit");
  EXPECT_EQ(BadField(With(request, {{0, 0, 1}}, Unit::kBytes)), "spans.unit");
  EXPECT_EQ(BadField(With(request, {{0, 0, 4}})), "spans.ranges[0].end");
  EXPECT_EQ(BadField(With(request, {{0, 0, 1, true}})), "spans.ranges[0].pair");
  EXPECT_THAT(Placed(With(request, {{1, 0, 4}, {0, 0, 3}, {1, 2, 3}})),
              ElementsAre("0-4", "0-3", "2-3"));
}

TEST_F(SpansTest, CharactersBecomeTheTokensTheyOverlap) {
  // [CLS] the cat ##s [UNK] . [SEP]
  const EncodeRequest text = TextsOf({"the  cats   \u4f60."});
  EXPECT_THAT(Placed(With(text, {{0, 0, 3}, {0, 2, 6}, {0, 8, 9}, {0, 3, 5}, {0, 12, 14}})),
              ElementsAre("1-2", "1-3", "3-4", "2-2", "4-6"));
  // All of a text: all but the special tokens.
  EXPECT_THAT(Placed(With(text, {{0, 0, 14}})), ElementsAre("1-6"));
  EXPECT_THAT(Placed(With(text, {{0, 12, 15}}, Unit::kBytes)), ElementsAre("4-5"));
  EXPECT_THAT(Placed(With(text, {{0, 0, 7}, {0, 6, 7}}, Unit::kTokens)), ElementsAre("0-7", "6-7"));
}

TEST_F(SpansTest, CharactersThatTheNormalizerChanges) {
  // Accents are stripped: they lie in no token, or in their letter's.
  EXPECT_THAT(Placed(With(TextsOf({"a \u00e0 b"}), {{0, 2, 3}})), ElementsAre("2-3"));
  EXPECT_THAT(Placed(With(TextsOf({"a\u0301 b"}), {{0, 0, 2}, {0, 0, 1}, {0, 3, 4}})),
              ElementsAre("1-2", "1-2", "2-3"));
  // One character that NFKC makes 18 of, several words: all their tokens are its own.
  Load([](TinyModel& files) {
    WriteFile(files / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
    files.EditJson("tokenizer.json", [](nlohmann::json& tokenizer) {
      tokenizer["normalizer"] = {{"type", "NFKC"}};
    });
  });
  EXPECT_THAT(Placed(With(TextsOf({"a \ufdfa b"}), {{0, 2, 3}, {0, 0, 1}, {0, 4, 5}})),
              ElementsAre("2-6", "1-2", "6-7"));
}

TEST_F(SpansTest, PairsAndPromptsAreCountedByThemselves) {
  // [CLS] the cat [SEP] a b c [SEP]
  EXPECT_THAT(Placed(With(TextsOf({"the cat"}, {"a b c"}),
                          {{0, 4, 5, true}, {0, 0, 7}, {0, 0, 3, true}, {0, 0, 3}})),
              ElementsAre("6-7", "1-3", "4-6", "1-2"));
  Load([](TinyModel& files) {
    WriteFile(files / "config_sentence_transformers.json",
              R"({"prompts": {"q": "the mat, "}, "default_prompt_name": "q"})");
  });
  // [CLS] the mat , the cat [SEP] a [SEP]
  const EncodeRequest text = TextsOf({"the cat"}, {"a"});
  EXPECT_THAT(Placed(With(text, {{0, 0, 3}, {0, 0, 1, true}, {0, 4, 7}})),
              ElementsAre("4-5", "7-8", "5-6"));
  EXPECT_THAT(Placed(With(text, {{0, 0, 3}}, Unit::kTokens)), ElementsAre("0-3"));
  EncodeRequest plain = With(text, {{0, 0, 3}});
  plain.prompt_name = "";
  EXPECT_THAT(Placed(plain), ElementsAre("1-2"));
}

TEST_F(SpansTest, WhatIsCutOffIsSaid) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "cat ";  // 30 of them fit
  EncodeRequest request =
      With(TextsOf({text}),
           {{0, 0, 12}, {0, 112, 120}, {0, 116, 120}, {0, 116, 121}, {0, 120, 240}, {0, 100, 240}});
  EXPECT_THAT(Placed(request),
              ElementsAre("1-4", "29-31", "30-31", "30-31 cut", "31-31 cut", "26-31 cut"));
  request.truncate = false;
  EXPECT_EQ(BadField(request), "texts.texts[0]");
  EXPECT_THAT(
      Placed(With(TextsOf({text}), {{0, 0, 32}, {0, 30, 40}, {0, 32, 99999}}, Unit::kTokens)),
      ElementsAre("0-32", "30-32 cut", "32-32 cut"));
  EncodeRequest tokens;
  tokens.input = TokenInput{.ids = std::vector<int64_t>(40, 8), .type_ids = {}, .lengths = {}};
  EXPECT_THAT(Placed(With(tokens, {{0, 31, 40}, {0, 35, 40}})),
              ElementsAre("31-32 cut", "32-32 cut"));
  EXPECT_EQ(BadField(With(tokens, {{0, 31, 41}})), "spans.ranges[0].end");
}

TEST_F(SpansTest, ThereAreLimits) {
  const EncodeRequest text = TextsOf({"the cat"});  // 4 tokens
  std::vector<Range> ranges(static_cast<size_t>(kMostSpans), Range{0, 0, 7});
  EXPECT_EQ(BadField(With(text, ranges)), "");
  ranges.push_back({0, 0, 1});
  EXPECT_EQ(BadField(With(text, ranges)), "spans.ranges");
  EXPECT_EQ(BadField(With(text, std::vector<Range>(1000000, Range{0, 0, 1}))), "spans.ranges");
  // 62 times all of 32 tokens is too much only where there are few of both.
  std::string all;
  for (int i = 0; i < 30; ++i) all += "cat ";
  EncodeRequest big = TextsOf({all});
  EXPECT_EQ(BadField(With(big, std::vector<Range>(2000, Range{0, 0, 32}), Unit::kTokens)), "");
  Prepared prepared;
  prepared.cu_seqlens = {0, 1000};
  prepared.spans = std::vector<PooledSpan>(68, {.begin = 0, .end = 1000});
  EXPECT_TRUE(EndSpans(&prepared).ok());
  prepared.spans.resize(70, {.begin = 0, .end = 1000});
  EXPECT_THAT(std::string(EndSpans(&prepared).message()), HasSubstr("70000 tokens"));
}

// Random ranges of random texts, in any order, prepared in slices: as if each token were asked.
TEST_F(SpansTest, RandomRangesGetTheTokensThatOverlapThem) {
  const std::vector<std::string> words = {"the", " ",  "cats",   "\u00e9", "a\u0301", "\u4f60", ".",
                                          "  ",  "\n", "[SEP]",  "zebra",  "mats",    "\u3000", ",",
                                          "b",   "on", "\ufdfa", "\u0130", "[CLS] "};
  const auto opened = OpenTokenizer(GoldenDirectory() + "/tiny_bert/tokenizer.json");
  ASSERT_TRUE(opened.ok());
  for (int round = 0; round < Scaled(200); ++round) {
    std::vector<std::string> texts(static_cast<size_t>(UpTo(4))), pairs;
    if (Uniform(0, 1) == 0) pairs.resize(texts.size());
    for (auto* list : {&texts, &pairs}) {
      for (std::string& text : *list) {
        for (int64_t n = UpTo(25); n > 0; --n) {
          text += words[static_cast<size_t>(Uniform(0, std::ssize(words) - 1))];
        }
      }
    }
    EncodeRequest request = TextsOf({texts.begin(), texts.end()}, {pairs.begin(), pairs.end()});
    const bool bytes = Uniform(0, 1) == 0;
    request.spans.unit = bytes ? Unit::kBytes : Unit::kCharacters;
    std::vector<std::pair<size_t, size_t>> in_bytes;
    for (int64_t n = UpTo(30); n > 0; --n) {
      Range range{.sequence = static_cast<int32_t>(Uniform(0, std::ssize(texts) - 1))};
      range.pair = !pairs.empty() && Uniform(0, 1) == 0;
      const std::string& text = (range.pair ? pairs : texts)[static_cast<size_t>(range.sequence)];
      std::vector<size_t> starts;
      for (size_t at = 0; at <= text.size(); ++at) {
        if ((static_cast<unsigned char>(text.c_str()[at]) & 0xc0) != 0x80) starts.push_back(at);
      }
      const int64_t last = std::ssize(starts) - 1;
      const int64_t begin = Uniform(0, last - 1), end = Uniform(begin + 1, last);
      in_bytes.emplace_back(starts[begin], starts[end]);
      range.begin = bytes ? static_cast<int64_t>(in_bytes.back().first) : begin;
      range.end = bytes ? static_cast<int64_t>(in_bytes.back().second) : end;
      request.spans.ranges.push_back(range);
    }
    ASSERT_TRUE(model_->CheckInput(request, 8, 1 << 20).ok());
    Prepared prepared;
    for (bool done = false; !done;) {
      const auto more = model_->PrepareSome(request, {.bytes = 1}, &prepared);
      ASSERT_TRUE(more.ok()) << more.status();
      done = *more;
    }
    for (size_t i = 0; i < in_bytes.size(); ++i) {
      const Range& range = request.spans.ranges[i];
      const auto sequence = static_cast<size_t>(range.sequence);
      const std::optional<std::string_view> pair =
          pairs.empty() ? std::nullopt : std::optional<std::string_view>(pairs[sequence]);
      std::vector<int64_t> ids, types;
      hf::TokenOffsets offsets;
      ASSERT_TRUE((*opened)
                      ->Encode(texts[sequence], pair, {.max_tokens = 32}, &ids, &types, &offsets)
                      .ok());
      const hf::TokenOffsets::Text& own = offsets.texts[range.pair ? 1 : 0];
      std::vector<int32_t> hit;
      for (size_t t = own.begin; t < own.end; ++t) {
        const auto& token = offsets.bytes[t];
        if (token.begin < in_bytes[i].second && token.end > in_bytes[i].first) {
          hit.push_back(static_cast<int32_t>(t));
        }
      }
      const PooledSpan& span = prepared.spans[i];
      if (hit.empty()) {
        EXPECT_EQ(span.begin, span.end);
      } else {
        EXPECT_EQ(span.begin, hit.front());
        EXPECT_EQ(span.end, hit.back() + 1);
      }
      EXPECT_EQ(span.truncated, in_bytes[i].second > own.cut);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace castor::encoder
