// Long texts are tokenized in parts, and only as far as a model's length needs. The ids, and the
// bytes that each token was made of, are compared with those of the whole text, for pipelines and
// texts in which a bad cut would change them.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/hf/tokenizer.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::hf {
namespace {

using nlohmann::json;
using Edit = std::function<void(json&)>;

constexpr int64_t kWhole = int64_t{1} << 24;  // tokens, more than any text here has

std::string Repeat(std::string_view text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

const std::vector<std::string> kWords = {
    "the",    "river", "Mill",   "a",  "I",    "1897",   "été",     "Müller", "Ĳssel", "реки",
    "Ἀθῆναι", "ΣΑΣ",   "강물이", "한", "水車", "mill's", "letter,", "(sea)",  "tok",   "TOK",
};

// Texts that are removed, joined, split, sorted or composed, between and inside words.
const std::vector<std::string> kOddities = {
    // Spaces.
    "  ", "   ", "\t", "\n", "\r\n", " \n", "\u0085", "\u00a0", "\u2028", "\u200b", "\u3000",
    "\ufeff",
    // Marks alone, after a space, and where they compose, are sorted or must not be.
    "e\u0301", "\u0301", " \u0301", "\u0338", "=\u0338", "\u034f", "\u0327\u0301", "\u0301\u0327",
    "\u0e01\u0e34", "\u0e33", "\uff9e",
    // Hangul in parts; Chinese, a compatibility ideograph among it.
    "\u1112\u1161", "\u11ab", "\u4f60", "\u597d\u597d", "\uf900",
    // Joiners, selectors, what stands for spaces, what becomes several characters, or none.
    "\u200d", "\ufe0f", "\U0001f469\u200d", "\U0001f680\ufe0f", "\u0600", "\u2581", " \u2581 ",
    "\u00a8", " \u00a8 ", "\u00bd", "\ufdfa", "\uff26", "\ufb01", "\u00ad", "\u0001",
    std::string(1, '\0'), "\ufffd", "\U0001f30a",
    // Punctuation, and what looks like special tokens.
    "!", ".", "-", "_", "'", " '", " 's ", "\u201c", "\uff0c", "[SEP]", "[SE", "P]", "[MASK]",
    "<mask>", " <mask> ", "<s>", "<pad>", "tok", "toktok", "TOK", "="};

// One token, in every pipeline.
constexpr char kLongToken[] = "==================================================";

struct Pipeline {
  const char* name;
  const char* family;  // of tests/golden/encoder
  Edit edit = [](json&) {};
  bool parts = true;  // whether it reads long texts so
  // Whether tokens' places are compared. Behind a precompiled normalizer the crate's offsets may be
  // those of a character nearby, and which depends on where a part begins. A token that takes
  // spaces takes what the normalizer puts or removes among them too, as far as the part reaches.
  bool places = true;
};

Edit Set(const char* part, const json& value) {
  return [=](json& tokenizer) { tokenizer[part] = value; };
}

Edit Bert(const char* key, const json& value) {
  return [=](json& tokenizer) { tokenizer["normalizer"][key] = value; };
}

// Another normalizer, and another way to find words.
Edit Words(const char* words, const json& normalizer) {
  return [=](json& tokenizer) {
    tokenizer["pre_tokenizer"] = {{"type", words}};
    tokenizer["normalizer"] = normalizer;
  };
}

json Metaspace(const char* scheme) {
  return {{"type", "Metaspace"},
          {"replacement", "\u2581"},
          {"prepend_scheme", scheme},
          {"split", true}};
}

json Bytes(bool prefix) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix},
          {"trim_offsets", true},
          {"use_regex", true}};
}

json Token(const char* content, const json& settings = json::object()) {
  json token = {{"content", content}, {"single_word", false}, {"lstrip", false},
                {"rstrip", false},    {"normalized", true},   {"special", false}};
  token.update(settings);
  return token;
}

Edit Add(const std::vector<json>& tokens) {
  return [=](json& tokenizer) {
    for (json token : tokens) {
      token["id"] = tokenizer["added_tokens"].size() + 4000;
      tokenizer["added_tokens"].push_back(token);
    }
  };
}

// The normalizer, then another.
void Normalize(json& tokenizer, const json& then) {
  tokenizer["normalizer"] = {{"type", "Sequence"},
                             {"normalizers", {tokenizer["normalizer"], then}}};
}

// As sentencepiece puts spaces together.
void JoinSpaces(json& tokenizer) {
  Normalize(tokenizer, {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
}

constexpr char kBert[] = "tiny_bert", kRoberta[] = "families/roberta",
               kXlm[] = "families/xlm_roberta", kCamembert[] = "families/camembert";

std::vector<Pipeline> Pipelines() {
  const json two = {{"type", "Sequence"},
                    {"normalizers", {json{{"type", "NFD"}}, json{{"type", "Lowercase"}}}}};
  const json stripped = {{"lstrip", true}}, greedy = {{"rstrip", true}},
             word = {{"single_word", true}};
  return {
      {"BERT", kBert},
      {"cased", kBert, Bert("lowercase", false)},
      {"accents kept", kBert, Bert("strip_accents", false)},
      {"nothing cleaned", kBert, Bert("clean_text", false)},
      {"no Chinese", kBert, Bert("handle_chinese_chars", false)},
      {"added tokens", kBert,
       Add({Token("tok"), Token("tok.", {{"normalized", false}}),
            Token("=", {{"lstrip", true}, {"rstrip", true}})}),
       true, false},
      {"added words", kBert, Add({Token("tok", {{"single_word", true}, {"lstrip", true}})}), true,
       false},
      {"added Chinese", kBert, Add({Token("\u597d\u597d")}), false},
      {"added in brackets", kBert, Add({Token("<tok>"), Token("tok]", word), Token("[xx", greedy)}),
       true, false},
      {"added with a space", kBert, Add({Token("the river")}), false},
      {"words and NFC", kBert, Words("Whitespace", {{"type", "NFC"}})},
      {"spaces and NFKC", kBert, Words("WhitespaceSplit", {{"type", "NFKC"}})},
      {"BERT's words and NFD", kBert, Words("BertPreTokenizer", two)},
      {"BERT's words and NFKC", kBert, Words("BertPreTokenizer", {{"type", "NFKC"}})},
      {"words and NFKD", kBert, Words("Whitespace", {{"type", "NFKD"}})},
      {"no normalizer", kBert, Words("BertPreTokenizer", nullptr)},
      {"bytes behind BERT's normalizer", kBert, Set("pre_tokenizer", Bytes(true))},
      {"bytes", kRoberta},
      {"bytes behind a prefix", kRoberta, Set("pre_tokenizer", Bytes(true))},
      {"bytes of NFC", kRoberta, Set("normalizer", {{"type", "NFC"}})},
      {"bytes of NFKC", kRoberta, Set("normalizer", {{"type", "NFKC"}})},
      {"bytes with an added token", kRoberta, Add({Token("tok", stripped)})},
      {"bytes with an added word", kRoberta, Add({Token("tok", word)})},
      {"bytes with a greedy token", kRoberta, Add({Token("tok", greedy)}), false},
      {"bytes of whole texts", kRoberta,
       [](json& tokenizer) { tokenizer["pre_tokenizer"]["use_regex"] = false; }, false},
      {"Unigram", kXlm, [](json&) {}, true, false},
      {"Unigram with spaces joined", kXlm, JoinSpaces, true, false},
      {"Unigram of Metaspace's words with spaces joined", kXlm,
       [](json& tokenizer) {
         JoinSpaces(tokenizer);
         tokenizer["pre_tokenizer"] = Metaspace("always");
       },
       true, false},
      {"Unigram of stripped texts", kXlm,
       [](json& tokenizer) {
         Normalize(tokenizer, {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
       },
       false, false},
      {"Unigram of whole texts", kXlm,
       [](json& tokenizer) {
         tokenizer["pre_tokenizer"] = Metaspace("always");
         tokenizer["pre_tokenizer"]["split"] = false;
       },
       false, false},
      {"Unigram, always a prefix", kXlm, Set("pre_tokenizer", Metaspace("always")), true, false},
      {"Unigram, the first has a prefix", kXlm, Set("pre_tokenizer", Metaspace("first")), true,
       false},
      {"Unigram, no prefix", kXlm, Set("pre_tokenizer", Metaspace("never")), true, false},
      {"Unigram with an added token", kXlm, Add({Token("tok", stripped)}), true, false},
      {"Unigram of NFKC", kCamembert},
      {"Unigram of nothing", kCamembert, Set("normalizer", nullptr)},
  };
}

// A word piece for every character that a normalizer can produce, so that ids distinguish texts.
void AddVocabulary(json& tokenizer) {
  json& vocabulary = tokenizer["model"]["vocab"];
  const auto add = [&](const std::string& piece) {
    for (const std::string& word : {piece, "##" + piece}) {
      if (!vocabulary.contains(word)) vocabulary[word] = vocabulary.size();
    }
  };
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  for (const char* piece :
       {"\u00e9", "\u0301", "\u0338", "\u0327", "\u4f60", "\u597d", "\u1112", "\u1161", "\u11ab",
        "\uac00", "\ud55c", "\u0436", "\u0e01", "\U0001f469", "\U0001f680", "\u2260", "\u0229"}) {
    add(piece);
  }
}

struct Encoded {
  std::vector<int64_t> ids = {}, types = {};
  bool cut = false;
  std::vector<TokenOffsets::Bytes> bytes = {};  // and what follows: only where places are compared
  std::vector<size_t> cuts = {};

  bool operator==(const Encoded&) const = default;
};

class LongTextTest : public testing::Test, protected Seeded {
 protected:
  std::unique_ptr<Tokenizer> Open(const Pipeline& pipeline, const std::vector<json>& more = {}) {
    json tokenizer = json::parse(
        encoder::ReadFile(encoder::GoldenDirectory() + "/" + pipeline.family + "/tokenizer.json"));
    if (pipeline.family == kBert) AddVocabulary(tokenizer);
    pipeline.edit(tokenizer);
    Add({Token(kLongToken)})(tokenizer);
    Add(more)(tokenizer);
    encoder::WriteFile(folder_ / "tokenizer.json", tokenizer.dump());
    auto opened = encoder::OpenTokenizer(folder_ / "tokenizer.json");
    EXPECT_TRUE(opened.ok()) << pipeline.name << ": " << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // The same with an added token that holds a space, so that no place is safe to cut at.
  std::unique_ptr<Tokenizer> OpenWhole(const Pipeline& pipeline) {
    return Open(pipeline, {Token("\U0001d7d8 \U0001d7d9")});
  }

  const std::string& Any(const std::vector<std::string>& of) {
    return of[static_cast<size_t>(Uniform(0, std::ssize(of) - 1))];
  }

  // `odd`: the percentage of words that are followed by oddities instead of a space.
  std::string RandomText(int words, int64_t odd) {
    std::string text;
    for (int i = 0; i < words; ++i) {
      text += Any(kWords);
      const bool plain = Uniform(0, 99) >= odd;
      for (int64_t n = plain ? 0 : Uniform(1, 4); n > 0; --n) {
        const std::string& oddity = Any(kOddities);
        const int64_t kind = Uniform(0, 999);
        const int64_t times = kind == 0 ? Uniform(1, 2000) : kind < 20 ? Uniform(1, 60) : 1;
        text += Repeat(oddity, static_cast<size_t>(times) * oddity.size());
      }
      if (plain || Uniform(0, 1) == 0) text += " ";
    }
    return text;
  }

  TemporaryFolder folder_;
};

Encoded Encode(const Tokenizer& tokenizer, std::string_view text,
               std::optional<std::string_view> pair, const EncodeOptions& options,
               bool places = false) {
  Encoded encoded;
  absl::StatusOr<bool> cut = tokenizer.Encode(text, pair, options, &encoded.ids, &encoded.types);
  EXPECT_TRUE(cut.ok()) << cut.status();
  encoded.cut = cut.ok() && *cut;
  if (options.stop) return encoded;
  Encoded again;
  TokenOffsets offsets;
  EXPECT_TRUE(tokenizer.Encode(text, pair, options, &again.ids, &again.types, &offsets).ok());
  EXPECT_EQ(again.ids, encoded.ids);
  if (!places) return encoded;
  encoded.bytes = std::move(offsets.bytes);
  encoded.cuts = {offsets.texts[0].cut, offsets.texts[1].cut};
  return encoded;
}

void ExpectAsWhole(const Tokenizer& tokenizer, const Tokenizer& whole, std::string_view text,
                   std::string_view pair, int64_t max_tokens, bool special, bool places = true) {
  const EncodeOptions options{.max_tokens = max_tokens, .allow_special_tokens = special};
  for (const std::optional<std::string_view>& second :
       {std::optional<std::string_view>(), std::optional(pair)}) {
    const Encoded parts = Encode(tokenizer, text, second, options, places);
    const Encoded all = Encode(whole, text, second, options, places);
    ASSERT_EQ(parts.ids, all.ids) << text;
    ASSERT_EQ(parts.cuts, all.cuts) << text;
    ASSERT_TRUE(parts == all) << text;
  }
}

TEST_F(LongTextTest, PartsGiveTheIdsOfTheWhole) {
  for (const Pipeline& pipeline : Pipelines()) {
    SCOPED_TRACE(pipeline.name);
    const auto tokenizer = Open(pipeline), whole = OpenWhole(pipeline);
    ASSERT_TRUE(tokenizer && whole);
    for (int i = 0; i < Rounds(Scaled(16)); ++i) {
      const std::string text = RandomText(UpTo(1500), Uniform(0, 100));
      const std::string pair = RandomText(UpTo(1500), Uniform(0, 100));
      const int64_t tokens = i % 4 == 0 ? kWhole : Uniform(8, 900);
      ExpectAsWhole(*tokenizer, *whole, text, pair, tokens, i % 2 == 1, pipeline.places);
      if (HasFatalFailure()) return;
    }
  }
}

// The first part ends at the first cut after 1,024 bytes: here, next to each oddity.
TEST_F(LongTextTest, CutsBesideOdditiesGiveTheIdsOfTheWhole) {
  const std::string filler = Repeat(kLongToken, 1000);
  const EncodeOptions options{.max_tokens = 128, .allow_special_tokens = true};
  for (const Pipeline& pipeline : Pipelines()) {
    SCOPED_TRACE(pipeline.name);
    const auto tokenizer = Open(pipeline), whole = OpenWhole(pipeline);
    ASSERT_TRUE(tokenizer && whole);
    for (const std::string& odd : kOddities) {
      const std::vector<std::string> joints = {odd + "ab cd",      "ab" + odd + " cd",
                                               "ab " + odd + "cd", "ab c" + odd + "d",
                                               "a" + odd + "b cd", odd + odd + "ab"};
      for (int i = 0; i < Rounds(static_cast<int>(joints.size())); ++i) {
        const std::string& joint = joints[static_cast<size_t>(Uniform(0, 5))];
        const auto shift = static_cast<size_t>(Uniform(12, 24));
        const std::string text = filler + std::string(shift, 'x') + joint + " ef gh, ij";
        const Encoded all = Encode(*whole, text, {}, options, pipeline.places);
        ASSERT_EQ(Encode(*tokenizer, text, {}, options, pipeline.places), all) << text.substr(1000);
      }
    }
  }
}

TEST_F(LongTextTest, HostileTextsGiveTheIdsOfTheWhole) {
  const Pipeline bert = {"BERT", kBert};
  const auto tokenizer = Open(bert), whole = OpenWhole(bert);
  ASSERT_TRUE(tokenizer && whole);
  const size_t kBytes = static_cast<size_t>(Rounds(32)) << 10;
  const std::string words = Repeat("the cat sat, ", kBytes);
  for (const std::string& oddity : kOddities) {
    const std::string text = Repeat(oddity, kBytes);
    SCOPED_TRACE(testing::PrintToString(oddity));
    ExpectAsWhole(*tokenizer, *whole, text, words, 64, true);
    ExpectAsWhole(*tokenizer, *whole, text + words, text + "tok", 63, false);
    if (HasFatalFailure()) return;
  }
  const std::string late = std::string(1 << 20, ' ') + "the cat";
  ExpectAsWhole(*tokenizer, *whole, late, "\n" + late, 64, false);
}

TEST_F(LongTextTest, ShortTextsGiveTheIdsOfTheWhole) {
  for (const Pipeline& pipeline : Pipelines()) {
    SCOPED_TRACE(pipeline.name);
    const auto tokenizer = Open(pipeline), whole = OpenWhole(pipeline);
    ASSERT_TRUE(tokenizer && whole);
    for (const std::string text : {"", " ", "a", "a b", "ab c", "\u00e9"}) {
      for (const int64_t tokens : {6, 512}) {
        ExpectAsWhole(*tokenizer, *whole, text, "a b", tokens, false);
      }
    }
  }
}

// With an odd number of places it matters which text is longer, however long both are.
TEST_F(LongTextTest, TheLongerOfTwoLongTextsKeepsTheOddToken) {
  const Pipeline bert = {"BERT", kBert};
  const auto tokenizer = Open(bert), whole = OpenWhole(bert);
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

int PartsOf(const Tokenizer& tokenizer, const std::string& text, int64_t max_tokens) {
  int asked = 0;
  const EncodeOptions options{.max_tokens = max_tokens, .stop = [&] {
                                ++asked;
                                return false;
                              }};
  EXPECT_TRUE(Encode(tokenizer, text, {}, options).cut);
  return asked + 1;
}

TEST_F(LongTextTest, ReadsNoFurtherThanItNeeds) {
  std::string text;
  while (text.size() < (1 << 20)) text += Any(kWords) + " ";
  for (const Pipeline& pipeline : Pipelines()) {
    SCOPED_TRACE(pipeline.name);
    const auto tokenizer = Open(pipeline);
    ASSERT_TRUE(tokenizer);
    const int parts = PartsOf(*tokenizer, text, 30000);
    EXPECT_EQ(parts > 1, pipeline.parts) << parts;
    EXPECT_LT(parts, 40);
  }
  const int parts = PartsOf(*Open({"BERT", kBert}), Repeat("\u4f60", 1 << 20), 30000);
  EXPECT_GT(parts, 1);
  EXPECT_LT(parts, 40);
}

TEST_F(LongTextTest, StopsBetweenParts) {
  const auto tokenizer = Open({"BERT", kBert});
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
