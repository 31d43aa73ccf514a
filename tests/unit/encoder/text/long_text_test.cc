// Long texts are tokenized in parts, and only as far as a model's length needs. The ids, and the
// bytes that each token was made of, are compared with those of the whole text, for pipelines and
// texts in which a bad cut would change them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/hf/tokenizer.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"
#include "tests/unit/encoder/text/tiny_vocabulary.h"

namespace castor::hf {
namespace {

using nlohmann::json;

constexpr int64_t kWhole = int64_t{1} << 24;  // tokens, more than any text here has

std::string Repeat(std::string_view text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

// Fragments of texts: words, and sequences that are removed, joined, split or composed across
// characters.
const std::vector<std::string> kFragments = {
    "a",
    "cat",
    "CATS",
    "the",
    " ",
    "  ",
    "\t",
    "\r\n",
    ".",
    "-",
    "=",
    "_",
    "'",
    "[SEP]",
    "[SE",
    "P]",
    "[MASK]",
    "tok",
    "toktok",
    "TOK",
    "7",
    "\xc3\xa9",          // e with an acute accent
    "e\xcc\x81",         // the same in two characters
    "\xcc\x81",          // the accent alone
    "\xcc\xb8",          // a stroke that composes with '='
    "\xcd\x8f",          // a joiner that prevents the sorting of marks
    "\xcc\xa7\xcc\x81",  // marks that get sorted
    "\xcc\x81\xcc\xa7",
    "\xe4\xbd\xa0",              // Chinese
    "\xe5\xa5\xbd\xe5\xa5\xbd",  // Chinese
    "\xef\xa4\x80",              // a compatibility ideograph
    "\xe1\x84\x92\xe1\x85\xa1",  // Hangul in parts, which compose
    "\xe1\x86\xab",
    "\xea\xb0\x80",
    "\xd0\xb6\xd0\xb6",              // Cyrillic
    "\xe0\xb8\x81\xe0\xb8\xb4",      // Thai, with a mark
    "\xf0\x9f\x91\xa9\xe2\x80\x8d",  // a woman and a joiner
    "\xf0\x9f\x9a\x80\xef\xb8\x8f",  // a rocket and a variation selector
    "\xe2\x80\x8b",                  // a zero-width space
    "\xef\xbb\xbf",
    "\xc2\xa0",  // other kinds of space
    "\xe3\x80\x80",
    "\xe2\x80\xa8",
    "\xc2\x85",
    std::string("\0", 1),
    "\x01",
    "\xef\xbf\xbd",
    "\xe2\x80\x9c",  // punctuation beyond ASCII
    "\xef\xbc\x8c",
};

// A word piece for every character that a normalizer can produce, so that ids distinguish texts.
void AddVocabulary(json* tokenizer) {
  json& vocabulary = (*tokenizer)["model"]["vocab"];
  size_t next = vocabulary.size();
  const auto add = [&](const std::string& piece) {
    for (const std::string& word : {piece, "##" + piece}) {
      if (!vocabulary.contains(word)) vocabulary[word] = next++;
    }
  };
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  for (const char* piece :
       {"\xc3\xa9", "\xcc\x81", "\xcc\xb8", "\xcc\xa7", "\xe4\xbd\xa0", "\xe5\xa5\xbd",
        "\xe1\x84\x92", "\xe1\x85\xa1", "\xe1\x86\xab", "\xea\xb0\x80", "\xed\x95\x9c", "\xd0\xb6",
        "\xe0\xb8\x81", "\xf0\x9f\x91\xa9", "\xf0\x9f\x9a\x80", "\xe2\x89\xa0", "\xc8\xa9"}) {
    add(piece);
  }
}

json AddedToken(const std::string& content, const json& settings = {}) {
  json token = {{"id", 0},         {"content", content}, {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", true}, {"special", false}};
  token.update(settings.is_null() ? json::object() : settings);
  return token;
}

struct Pipeline {
  const char* name;
  std::function<void(json&)> edit;
  // Whether tokens' places are compared. A token that takes the spaces behind it (rstrip) also
  // takes the one that the normalizer puts before a Chinese character, and with it that character's
  // place; but not over the end of a part.
  bool places = true;
};

std::vector<Pipeline> Pipelines() {
  const auto bert = [](const char* key, const json& value) {
    return [=](json& tokenizer) { tokenizer["normalizer"][key] = value; };
  };
  const auto add = [](const std::vector<json>& tokens) {
    return [=](json& tokenizer) {
      for (json token : tokens) {
        token["id"] = tokenizer["added_tokens"].size() + 1000;
        tokenizer["added_tokens"].push_back(token);
      }
    };
  };
  const auto other = [](const char* words, const json& normalizer) {
    return [=](json& tokenizer) {
      tokenizer["pre_tokenizer"] = {{"type", words}};
      tokenizer["normalizer"] = normalizer;
    };
  };
  const json two = {{"type", "Sequence"},
                    {"normalizers", {json{{"type", "NFD"}}, json{{"type", "Lowercase"}}}}};
  const auto bytes = [](json& tokenizer) {
    tokenizer["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}};
  };
  return {
      {"BERT", [](json&) {}},
      {"cased", bert("lowercase", false)},
      {"accents kept", bert("strip_accents", false)},
      {"nothing cleaned", bert("clean_text", false)},
      {"no Chinese", bert("handle_chinese_chars", false)},
      {"added tokens",
       add({AddedToken("tok"), AddedToken("tok.", {{"normalized", false}}),
            AddedToken("=", {{"lstrip", true}, {"rstrip", true}})}),
       false},
      // Stripping takes what the normalizer removes among the spaces, as far as the part reaches.
      {"added words", add({AddedToken("tok", {{"single_word", true}, {"lstrip", true}})}), false},
      {"added Chinese", add({AddedToken("\xe5\xa5\xbd\xe5\xa5\xbd")})},
      {"added in brackets",
       add({AddedToken("<tok>"), AddedToken("tok]", {{"single_word", true}}),
            AddedToken("[xx", {{"rstrip", true}})}),
       false},
      {"added with a space", add({AddedToken("the cat")})},
      {"words and NFC", other("Whitespace", {{"type", "NFC"}})},
      {"spaces and NFKC", other("WhitespaceSplit", {{"type", "NFKC"}})},
      {"BERT's words and NFD", other("BertPreTokenizer", two)},
      {"BERT's words and NFKC", other("BertPreTokenizer", {{"type", "NFKC"}})},
      {"words and NFKD", other("Whitespace", {{"type", "NFKD"}})},
      {"no normalizer", other("BertPreTokenizer", nullptr)},
      {"bytes", bytes},
  };
}

class LongTextTest : public testing::Test, protected Seeded {
 protected:
  std::unique_ptr<Tokenizer> Open(const std::function<void(json&)>& edit) {
    files_.emplace_back(std::make_unique<encoder::TinyModel>());
    files_.back()->EditJson("tokenizer.json", [&](json& tokenizer) {
      AddVocabulary(&tokenizer);
      edit(tokenizer);
    });
    auto tokenizer = Tokenizer::OpenFile(*files_.back() / "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }

  // The same pipeline, with an added token that contains a space, so no place is safe to cut at.
  std::unique_ptr<Tokenizer> OpenWhole(const std::function<void(json&)>& edit) {
    return Open([&](json& tokenizer) {
      edit(tokenizer);
      tokenizer["added_tokens"].push_back(AddedToken("\xf0\x9d\x9f\x98 \xf0\x9d\x9f\x99"));
      tokenizer["added_tokens"].back()["id"] = 5000;
    });
  }

  std::string RandomText(int fragments) {
    std::string text;
    for (int i = 0; i < fragments; ++i) {
      const auto& fragment =
          kFragments[static_cast<size_t>(Uniform(0, static_cast<int64_t>(kFragments.size()) - 1))];
      const int64_t kind = Uniform(0, 99);
      const int64_t times = kind == 0 ? Uniform(1, 2000) : kind < 5 ? Uniform(1, 60) : 1;
      for (int64_t n = 0; n < times; ++n) text += fragment;
    }
    return text;
  }

  std::vector<std::unique_ptr<encoder::TinyModel>> files_;
};

// The ids of all of `text`, without the special tokens around them.
std::vector<int64_t> AllIds(const Tokenizer& tokenizer, std::string_view text, bool special,
                            TokenOffsets* offsets = nullptr) {
  std::vector<int64_t> ids, types;
  const auto cut = tokenizer.Encode(
      text, {}, {.max_tokens = kWhole, .allow_special_tokens = special}, &ids, &types, offsets);
  EXPECT_TRUE(cut.ok() && !*cut);
  return {ids.begin() + 1, ids.end() - 1};
}

// That the tokenizer says of the text's first tokens, and of the one behind them, what it says of
// them when nothing is cut.
void ExpectOffsets(const TokenOffsets& offsets, int which, const TokenOffsets& all) {
  const TokenOffsets::Text &text = offsets.texts[which], &whole = all.texts[0];
  for (size_t i = 0; text.begin + i < text.end; ++i) {
    const TokenOffsets::Bytes bytes = offsets.bytes[text.begin + i];
    const TokenOffsets::Bytes expected = all.bytes[whole.begin + i];
    ASSERT_EQ(bytes.begin, expected.begin) << "token " << i;
    ASSERT_EQ(bytes.end, expected.end) << "token " << i;
  }
  size_t next = whole.begin + (text.end - text.begin);
  if (next == whole.end) {
    ASSERT_EQ(text.cut, SIZE_MAX);
    return;
  }
  if (all.bytes[next] != TokenOffsets::Bytes()) {
    ASSERT_EQ(text.cut, all.bytes[next].begin);
    return;
  }
  // A token of marks behind whitespace has no place, yet what is cut off begins with it.
  while (next < whole.end && all.bytes[next] == TokenOffsets::Bytes()) ++next;
  if (next < whole.end) {
    ASSERT_LE(text.cut, all.bytes[next].begin);
  }
}

void Append(const std::vector<int64_t>& from, size_t count, std::vector<int64_t>* ids) {
  ids->insert(ids->end(), from.begin(), from.begin() + static_cast<int64_t>(count));
  ids->push_back(kSep);
}

// Cuts the longer text first, as Hugging Face does.
std::vector<int64_t> CutPair(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                             size_t room) {
  size_t keep_a = a.size(), keep_b = b.size();
  if (keep_a + keep_b > room) {
    const size_t shorter = std::min(keep_a, keep_b);
    const size_t keep = shorter <= room / 2 ? shorter : room / 2;
    (a.size() > b.size() ? keep_b : keep_a) = keep;
    (a.size() > b.size() ? keep_a : keep_b) = room - keep;
  }
  std::vector<int64_t> ids = {kCls};
  Append(a, keep_a, &ids);
  Append(b, keep_b, &ids);
  return ids;
}

void ExpectAsWhole(const Tokenizer& tokenizer, const Tokenizer& whole, std::string_view text,
                   std::string_view pair, int64_t max_tokens, bool special, bool places = true) {
  const EncodeOptions options{.max_tokens = max_tokens, .allow_special_tokens = special};
  TokenOffsets all_offsets, other_offsets, offsets, cut_offsets;
  const std::vector<int64_t> all = AllIds(whole, text, special, &all_offsets);
  std::vector<int64_t> ids, types, expected = {kCls};
  absl::StatusOr<bool> cut = tokenizer.Encode(text, {}, options, &ids, &types);
  ASSERT_TRUE(cut.ok()) << cut.status();
  const size_t room = static_cast<size_t>(max_tokens) - 2;
  Append(all, std::min(room, all.size()), &expected);
  ASSERT_EQ(ids, expected);
  ASSERT_EQ(*cut, all.size() > room);
  ids.clear();
  ASSERT_TRUE(tokenizer.Encode(text, {}, options, &ids, &types, &offsets).ok());
  ASSERT_EQ(ids, expected);
  if (places) {
    ExpectOffsets(offsets, 0, all_offsets);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_TRUE(whole.Encode(text, {}, options, &ids, &types, &cut_offsets).ok());
    ASSERT_EQ(offsets.texts[0].cut, cut_offsets.texts[0].cut);
  }

  const std::vector<int64_t> other = AllIds(whole, pair, special, &other_offsets);
  ids.clear();
  types.clear();
  cut = tokenizer.Encode(text, pair, options, &ids, &types);
  ASSERT_TRUE(cut.ok()) << cut.status();
  ASSERT_EQ(ids, CutPair(all, other, room - 1)) << all.size() << " and " << other.size();
  ASSERT_EQ(*cut, all.size() + other.size() > room - 1);
  ids.clear();
  ASSERT_TRUE(tokenizer.Encode(text, pair, options, &ids, &types, &offsets).ok());
  ASSERT_EQ(ids, CutPair(all, other, room - 1));
  if (!places) return;
  ExpectOffsets(offsets, 0, all_offsets);
  if (!testing::Test::HasFatalFailure()) ExpectOffsets(offsets, 1, other_offsets);
  if (testing::Test::HasFatalFailure()) return;
  ASSERT_TRUE(whole.Encode(text, pair, options, &ids, &types, &cut_offsets).ok());
  ASSERT_EQ(offsets.texts[0].cut, cut_offsets.texts[0].cut);
  ASSERT_EQ(offsets.texts[1].cut, cut_offsets.texts[1].cut);
}

TEST_F(LongTextTest, PartsGiveTheIdsOfTheWhole) {
  for (const Pipeline& pipeline : Pipelines()) {
    SCOPED_TRACE(pipeline.name);
    const auto tokenizer = Open(pipeline.edit), whole = OpenWhole(pipeline.edit);
    ASSERT_TRUE(tokenizer && whole);
    for (int i = 0; i < Scaled(12); ++i) {
      const std::string text = RandomText(UpTo(1500)), pair = RandomText(UpTo(1500));
      ExpectAsWhole(*tokenizer, *whole, text, pair, Uniform(8, 700), i % 2 == 1, pipeline.places);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LongTextTest, HostileTextsGiveTheIdsOfTheWhole) {
  const auto tokenizer = Open([](json&) {}), whole = OpenWhole([](json&) {});
  ASSERT_TRUE(tokenizer && whole);
  constexpr size_t kBytes = kSanitized ? 8 << 10 : 32 << 10;
  const std::string words = Repeat("the cat sat, ", kBytes);
  for (const std::string& fragment : kFragments) {
    const std::string text = Repeat(fragment, kBytes);
    SCOPED_TRACE(testing::PrintToString(fragment));
    ExpectAsWhole(*tokenizer, *whole, text, words, 64, true);
    ExpectAsWhole(*tokenizer, *whole, text + words, text + "tok", 63, false);
    if (HasFatalFailure()) return;
  }
  const std::string late = std::string(1 << 20, ' ') + "the cat";
  ExpectAsWhole(*tokenizer, *whole, late, "\n" + late, 64, false);
}

// With an odd number of places it matters which text is longer, however long both are.
TEST_F(LongTextTest, TheLongerOfTwoLongTextsKeepsTheOddToken) {
  const auto tokenizer = Open([](json&) {}), whole = OpenWhole([](json&) {});
  ASSERT_TRUE(tokenizer && whole);
  const std::string text = Repeat("the cat sat on ", kSanitized ? 20000 : 50000);
  for (const std::string& other :
       {text, text + "mat", text.substr(15), "mat " + text, std::string(70000, ' ') + text,
        std::string(70000, ' ') + text + "mat"}) {
    for (const int64_t max_tokens : {32, 33}) {
      ExpectAsWhole(*tokenizer, *whole, text, other, max_tokens, false);
      if (kSanitized) continue;
      ExpectAsWhole(*tokenizer, *whole, other, text, max_tokens, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LongTextTest, ReadsNoFurtherThanItNeeds) {
  const auto tokenizer = Open([](json&) {});
  ASSERT_TRUE(tokenizer);
  // One token per 121 bytes, or 3, so that several parts are needed; the whole text has at
  // least 64.
  for (const auto& [text, tokens] :
       {std::pair{Repeat(std::string(120, 'x') + " ", 1 << 20), size_t{200}},
        std::pair{Repeat("\xe4\xbd\xa0", 1 << 20), size_t{10'000}}}) {
    std::vector<int64_t> ids, types;
    int parts = 0;
    const EncodeOptions options{.max_tokens = static_cast<int64_t>(tokens),
                                .stop = [&] { return ++parts > 10; }};
    const auto cut = tokenizer->Encode(text, {}, options, &ids, &types);
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_TRUE(*cut);
    EXPECT_EQ(ids.size(), tokens);
    EXPECT_GT(parts, 0);
  }
}

TEST_F(LongTextTest, StopsBetweenParts) {
  const auto tokenizer = Open([](json&) {});
  ASSERT_TRUE(tokenizer);
  const std::string text = Repeat("the cat ", 1 << 20);
  std::vector<int64_t> ids, types;
  int asked = 0;
  const EncodeOptions options{.max_tokens = kWhole, .stop = [&] { return ++asked == 3; }};
  const auto stopped = tokenizer->Encode(text, text, options, &ids, &types);
  EXPECT_EQ(ReasonOf(stopped.status()), Reason::kCancelled);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace castor::hf
