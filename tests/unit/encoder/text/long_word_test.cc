// Words without end, of any characters: only their ends are read. The ids, and the
// bytes that tokens were made of, are compared with those of the whole text, for random pipelines,
// and characters that normalizers remove, join, split, sort or take for punctuation.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/hf/tokenizer.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::hf {
namespace {

using nlohmann::json;

constexpr int64_t kAll = int64_t{1} << 24;  // tokens, more than any text here has

// Texts shorter than this are not worth shortening to the tokenizer.
constexpr size_t kLong = 34 << 10;

std::string Encoded(uint32_t code) {
  const auto tail = [code](int shift) {
    return static_cast<char>(0x80 | ((code >> shift) & 0x3f));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

const std::vector<uint32_t> kCharacters = {
    'a',     'S',     '7',     '_',     '.',     '<',     '=',     '>',     0,       1,
    0x0b,    0x85,    0xa0,    0xa8,    0xdf,    0xe9,    0x130,   0x149,   0x301,   0x327,
    0x338,   0x344,   0x34f,   0x378,   0x37e,   0x385,   0x387,   0x3a3,   0x3c2,   0x430,
    0x5d0,   0x627,   0x653,   0x661,   0x93c,   0x915,   0x958,   0x9be,   0x9c7,   0xdcf,
    0xdd9,   0xe01,   0xe33,   0xe34,   0xf0b,   0xf40,   0xf73,   0x1100,  0x1160,  0x1161,
    0x11a7,  0x11a8,  0x1361,  0x1780,  0x17d4,  0x180e,  0x1e9e,  0x1fed,  0x1fef,  0x2000,
    0x200b,  0x200c,  0x200d,  0x2026,  0x2028,  0x2060,  0x20dd,  0x2126,  0x212b,  0x2adc,
    0x3000,  0x3002,  0x302e,  0x304b,  0x3099,  0x309a,  0x4e00,  0xa802,  0xac00,  0xac01,
    0xe000,  0xf900,  0xfa0e,  0xfb1d,  0xfdfa,  0xfe0f,  0xfe19,  0xff0c,  0xff1c,  0xff76,
    0xff9e,  0xfffd,  0x110ba, 0x11347, 0x1133e, 0x16fe4, 0x1d15e, 0x1d165, 0x1e900, 0x1f469,
    0x1f3fd, 0x20000, 0x2f800, 0x40000, 0xe0041, 0xe0100, 0xf0000, 0x10fffd};

const std::vector<std::string> kAddedTokens = {"[SEP]", "[SE",     "-\u00e9", "a-",  "]\u0e01",
                                               "=",     "[\u0301", "a.a.a",   "<a>", "(\u1100"};

// With this one, none of its punctuation and of what is beyond ASCII is a place to cut. Only what
// is not cut is shortened.
const char* const kNoCuts = "=<>._\U0001d7d8";

class LongWordTest : public testing::Test, protected Seeded {
 protected:
  bool OneIn(int64_t times) { return Uniform(1, times) == 1; }

  template <typename T>
  const T& Any(const std::vector<T>& of) {
    return of[static_cast<size_t>(Uniform(0, static_cast<int64_t>(of.size()) - 1))];
  }

  uint32_t AnyCharacter() {
    if (!OneIn(4)) return Any(kCharacters);
    const auto code = static_cast<uint32_t>(Uniform(0, OneIn(2) ? 0x3400 : 0x1fbff));
    return code >= 0xd800 && code < 0xe000 ? 0xfffd : code;
  }

  json AnyNormalizer() {
    if (OneIn(2)) {
      const std::vector<json> strips = {nullptr, true, false};
      return {{"type", "BertNormalizer"},
              {"clean_text", !OneIn(4)},
              {"handle_chinese_chars", !OneIn(4)},
              {"strip_accents", Any(strips)},
              {"lowercase", OneIn(2)}};
    }
    const std::vector<const char*> types = {"Lowercase", "StripAccents", "NFC",
                                            "NFD",       "NFKC",         "NFKD"};
    return {{"type", Any(types)}};
  }

  json AnyNormalizers() {
    if (OneIn(10)) return nullptr;
    if (OneIn(2)) return AnyNormalizer();
    json normalizers = json::array();
    do normalizers.push_back(AnyNormalizer());
    while (!OneIn(3));
    return {{"type", "Sequence"}, {"normalizers", normalizers}};
  }

  json AnyAddedTokens(int64_t id) {
    json tokens = json::array();
    std::vector<std::string> contents;
    if (!OneIn(10)) contents.emplace_back(kNoCuts);
    for (const std::string& content : kAddedTokens) {
      if (OneIn(4)) contents.push_back(content);
    }
    for (const std::string& content : contents) {
      tokens.push_back({{"id", id++},
                        {"content", content},
                        {"single_word", OneIn(5)},
                        {"lstrip", OneIn(5)},
                        {"rstrip", OneIn(5)},
                        {"normalized", OneIn(2)},
                        {"special", OneIn(5)}});
    }
    return tokens;
  }

  // `whole`: with an added token that contains a space, so that nothing is cut or shortened.
  std::unique_ptr<Tokenizer> Open(json tokenizer, bool whole) {
    if (whole) {
      tokenizer["added_tokens"].push_back({{"id", 1000000},
                                           {"content", "\U0001d7d8 \U0001d7d9"},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", false}});
    }
    encoder::TinyModel files;
    files.EditJson("tokenizer.json", [&](json& file) { file = tokenizer; });
    auto opened = Tokenizer::OpenFile(files / "tokenizer.json");
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  static json Pipeline(const json& normalizer, const char* words, int64_t longest_word) {
    json tokenizer;
    encoder::TinyModel().EditJson("tokenizer.json", [&](json& file) { tokenizer = file; });
    tokenizer["normalizer"] = normalizer;
    tokenizer["pre_tokenizer"] = {{"type", words}};
    tokenizer["model"]["max_input_chars_per_word"] = longest_word;
    return tokenizer;
  }

  // Words of about the length from which they are shortened, with what ends them or does not.
  std::string AnyText(const std::vector<uint32_t>& characters, int64_t length) {
    std::string text;
    while (text.size() < kLong) {
      const int64_t kind = Uniform(0, 9), times = Uniform(1, 2 * length);
      const std::string one = Encoded(Any(characters)), other = Encoded(Any(characters));
      for (int64_t i = 0; i < times; ++i) {
        text += kind < 4 ? one : Encoded(Any(characters));
        for (int64_t n = kind < 7 ? 0 : Uniform(0, 2); n > 0; --n) text += other;
      }
      if (OneIn(100)) text += Any(kAddedTokens);
      if (!OneIn(5)) text += OneIn(2) ? "=" : Encoded(AnyCharacter());
    }
    return text;
  }
};

std::vector<int64_t> Ids(const Tokenizer& tokenizer, std::string_view text, bool special,
                         TokenOffsets* offsets = nullptr) {
  std::vector<int64_t> ids, types;
  const auto cut = tokenizer.Encode(text, {}, {.max_tokens = kAll, .allow_special_tokens = special},
                                    &ids, &types, offsets);
  EXPECT_TRUE(cut.ok() && !*cut);
  return ids;
}

TEST_F(LongWordTest, AnyCharactersInAnyPipelineGiveTheIdsOfTheWhole) {
  for (int i = 0; i < Scaled(100); ++i) {
    std::vector<uint32_t> characters;
    for (int64_t count = OneIn(2) ? UpTo(4) : UpTo(40); count > 0; --count) {
      characters.push_back(AnyCharacter());
    }
    const int64_t longest_word = UpTo(12);
    const std::vector<const char*> words = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"};
    json pipeline = Pipeline(AnyNormalizers(), Any(words), longest_word);
    json& vocabulary = pipeline["model"]["vocab"];
    for (const uint32_t code : characters) {
      for (const char* start : {"", "##"}) {
        vocabulary.emplace(start + Encoded(code), vocabulary.size());
      }
    }
    pipeline["added_tokens"] = AnyAddedTokens(static_cast<int64_t>(vocabulary.size()));
    const auto tokenizer = Open(pipeline, false), whole = Open(pipeline, true);
    ASSERT_TRUE(tokenizer && whole);
    const std::string text = AnyText(characters, longest_word + 12);
    for (const bool special : {false, true}) {
      ASSERT_EQ(Ids(*tokenizer, text, special), Ids(*whole, text, special))
          << pipeline["normalizer"] << pipeline["pre_tokenizer"] << pipeline["added_tokens"];
      TokenOffsets offsets, expected;
      ASSERT_EQ(Ids(*tokenizer, text, special, &offsets), Ids(*whole, text, special, &expected));
      ASSERT_TRUE(offsets.bytes == expected.bytes)
          << pipeline["normalizer"] << pipeline["pre_tokenizer"] << pipeline["added_tokens"];
    }
  }
}

// A word of a megabyte takes some milliseconds, read whole some hundred.
TEST_F(LongWordTest, OneWordOfAnyScriptTakesAFractionOfTheWhole) {
  const json pipeline = Pipeline({{"type", "BertNormalizer"},
                                  {"clean_text", true},
                                  {"handle_chinese_chars", true},
                                  {"strip_accents", nullptr},
                                  {"lowercase", true}},
                                 "BertPreTokenizer", 100);
  const auto tokenizer = Open(pipeline, false), whole = Open(pipeline, true);
  ASSERT_TRUE(tokenizer && whole);
  const auto best_of_three = [](const Tokenizer& reader, const std::string& text) {
    auto best = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      Ids(reader, text, false);
      best = std::min(best, std::chrono::steady_clock::now() - start);
    }
    return best;
  };
  for (const char* letters :
       {"cat", "e\u0301", "\u0436", "\u03b1\u03ac", "\u05d0", "\u0628\u0644", "\u0915\u094d\u0937",
        "\u0e01\u0e34", "\u1780\u17b6", "\uac00", "\u3042", "\U0001e900", "a\u200d",
        "\U0001f469\u200d\U0001f680\ufe0f", "\u0661"}) {
    SCOPED_TRACE(letters);
    std::string text;
    while (text.size() < 256 << 10) text += letters;
    EXPECT_LT(4 * best_of_three(*tokenizer, text), best_of_three(*whole, text));
  }
}

}  // namespace
}  // namespace castor::hf
