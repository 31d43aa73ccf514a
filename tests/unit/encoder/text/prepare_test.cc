#include "engine/encoder/text/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/prompts.h"
#include "engine/requests/staging.h"
#include "engine/residents/model_list.h"
#include "tests/support/seeded.h"
#include "tests/support/shared_object.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMaxSequences = 8;
constexpr int64_t kMaxTextBytes = 100;

class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model = LoadOnCpu(GoldenDirectory() + "/tiny_bert");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // The field that CheckInput complains about; "" when it passes.
  std::string BadField(const EncodeRequest& request) {
    const absl::Status status = model_->CheckInput(request, kMaxSequences, kMaxTextBytes);
    if (status.ok()) return "";
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidField) << status;
    return FieldOf(status).value_or("?");
  }

  std::shared_ptr<Model> model_;
};

EncodeRequest Texts(std::vector<std::string_view> texts, std::vector<std::string_view> pairs = {}) {
  EncodeRequest request;
  TextInput input;
  input.texts = std::move(texts);
  input.pairs = std::move(pairs);
  request.input = std::move(input);
  return request;
}

struct Ids {
  std::vector<int64_t> ids = {};
  std::vector<int64_t> type_ids = {};
  std::vector<int64_t> lengths = {};
};

EncodeRequest Tokens(Ids from) {
  EncodeRequest request;
  TokenInput input;
  input.ids = std::move(from.ids);
  input.type_ids = std::move(from.type_ids);
  input.lengths = std::move(from.lengths);
  request.input = std::move(input);
  return request;
}

EncodeRequest Embeddings(std::vector<int64_t> shape, std::span<const std::byte> bytes,
                         std::vector<int64_t> lengths = {}) {
  EncodeRequest request;
  EmbeddingInput input;
  input.values.shape = std::move(shape);
  input.values.pieces = {bytes};
  input.lengths = std::move(lengths);
  request.input = std::move(input);
  return request;
}

TEST_F(PrepareTest, ChecksTexts) {
  EXPECT_EQ(BadField(Texts({""})), "");
  EXPECT_EQ(BadField(Texts({})), "texts.texts");
  EXPECT_EQ(BadField(Texts(std::vector<std::string_view>(8, "a"))), "");
  EXPECT_EQ(BadField(Texts(std::vector<std::string_view>(9, "a"))), "texts.texts");
  EXPECT_EQ(BadField(Texts({"a", "b"}, {"c"})), "texts.pairs");
  EXPECT_EQ(BadField(Texts({"a"}, {"c", "d"})), "texts.pairs");
  const std::string limit(kMaxTextBytes, 'x'), over(kMaxTextBytes + 1, 'x');
  EXPECT_EQ(BadField(Texts({limit}, {limit})), "");
  EXPECT_EQ(BadField(Texts({"a", over})), "texts.texts[1]");
  EXPECT_EQ(BadField(Texts({"a", "b"}, {over, "c"})), "texts.pairs[0]");
}

TEST_F(PrepareTest, ChecksUtf8) {
  for (const std::string good : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(BadField(Texts({"12345678" + good})), "") << testing::PrintToString(good);
  }
  for (const std::string bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe1\x80",
        "\xe1\x80\xc0", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(BadField(Texts({"12345678" + bad})), "texts.texts[0]") << testing::PrintToString(bad);
    EXPECT_EQ(BadField(Texts({bad + "12345678"})), "texts.texts[0]") << testing::PrintToString(bad);
  }
}

double ThreadSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// The query of many pairs is checked once: that reads 3 MiB, not 12 GiB.
TEST_F(PrepareTest, ARepeatedTextIsCheckedOnce) {
  constexpr int64_t kPairs = 4096;
  std::string query;
  for (int i = 0; i < 1 << 20; ++i) query += "\xe2\x82\xac";
  const EncodeRequest request = Texts(std::vector<std::string_view>(kPairs, query),
                                      std::vector<std::string_view>(kPairs, "a"));
  const double begin = ThreadSeconds();
  const absl::Status status = model_->CheckInput(request, kPairs, 4 << 20);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_LT(ThreadSeconds() - begin, 1);
  query.back() = 'x';
  EXPECT_EQ(FieldOf(model_->CheckInput(request, kPairs, 4 << 20)), "texts.texts[0]");
}

TEST_F(PrepareTest, ChecksTokens) {
  EXPECT_EQ(BadField(Tokens({.ids = {0, 24}, .type_ids = {0, 1}, .lengths = {1, 1}})), "");
  EXPECT_EQ(BadField(Tokens({.ids = {}})), "tokens.ids");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 25}})), "tokens.ids[1]");
  EXPECT_EQ(BadField(Tokens({.ids = {-1}})), "tokens.ids[0]");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .type_ids = {0}})), "tokens.type_ids");
  EXPECT_EQ(BadField(Tokens({.ids = {0}, .type_ids = {2}})), "tokens.type_ids[0]");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .lengths = {2, 0}})), "tokens.lengths[1]");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .lengths = {-1, 3}})), "tokens.lengths[0]");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .lengths = {1}})), "tokens.lengths");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .lengths = {1, 2}})), "tokens.lengths");
  EXPECT_EQ(BadField(Tokens({.ids = {0, 1}, .lengths = {INT64_MAX, INT64_MAX}})), "tokens.lengths");
  EXPECT_EQ(
      BadField(Tokens({.ids = std::vector<int64_t>(9), .lengths = std::vector<int64_t>(9, 1)})),
      "tokens.lengths");
}

TEST_F(PrepareTest, ChecksEmbeddings) {
  const std::vector<std::byte> bytes(2 * 24 * 4);
  EXPECT_EQ(BadField(Embeddings({2, 24}, bytes, {1, 1})), "");
  EXPECT_EQ(BadField(Embeddings({2, 24}, bytes, {1, 2})), "embeddings.lengths");
  EXPECT_EQ(BadField(Embeddings({2, 25}, bytes)), "embeddings.values.shape[1]");
  EXPECT_EQ(BadField(Embeddings({2, 24, 1}, bytes)), "embeddings.values.shape");
  EXPECT_EQ(BadField(Embeddings({-2, 24}, bytes)), "embeddings.values.shape[0]");
  EXPECT_EQ(BadField(Embeddings({0, 24}, {})), "embeddings.values.shape[0]");
  EXPECT_EQ(BadField(Embeddings({3, 24}, bytes)), "embeddings.values.raw");
  EXPECT_EQ(BadField(Embeddings({INT64_MAX, 24}, bytes)), "embeddings.values.shape");
  EncodeRequest integers = Embeddings({2, 24}, bytes);
  std::get<EmbeddingInput>(integers.input).values.dtype = DType::kInt32;
  EXPECT_EQ(BadField(integers), "embeddings.values.dtype");
}

TEST_F(PrepareTest, ChecksDimensions) {
  EncodeRequest request = Texts({"a"});
  request.dimensions = 24;
  EXPECT_EQ(BadField(request), "");
  for (const int64_t bad : {-1, 25}) {
    request.dimensions = bad;
    EXPECT_EQ(BadField(request), "dimensions");
  }
}

TEST_F(PrepareTest, TokenizesAndTruncates) {
  const std::string longer =
      "the cat sat on the mat the cat sat on the mat the cat sat on the mat "
      "the cat sat on the mat the cat sat on the mat the cat sat on";
  EncodeRequest request = Texts({"the cat", longer, ""});
  const auto prepared = Prepare(request, *model_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(prepared->cu_seqlens, ElementsAre(0, 4, 36, 38));
  EXPECT_THAT(prepared->truncated, ElementsAre(false, true, false));
  EXPECT_EQ(prepared->ids.size(), 38u);
  EXPECT_EQ(prepared->type_ids.size(), 38u);

  request.truncate = false;
  const absl::Status refused = Prepare(request, *model_).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidField);
  EXPECT_EQ(FieldOf(refused), "texts.texts[1]");
}

TEST_F(PrepareTest, CutsTokens) {
  std::vector<int64_t> ids(45), types(45);
  for (int64_t i = 0; i < 45; ++i) ids[i] = i % 25;
  types[40] = 1;
  EncodeRequest request = Tokens({.ids = ids, .type_ids = types, .lengths = {3, 36, 6}});
  const auto prepared = Prepare(request, *model_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(prepared->cu_seqlens, ElementsAre(0, 3, 35, 41));
  EXPECT_THAT(prepared->truncated, ElementsAre(false, true, false));
  EXPECT_EQ(prepared->ids[34], ids[34]);
  EXPECT_EQ(prepared->ids[35], ids[39]);
  EXPECT_EQ(prepared->type_ids[36], 1);

  request.truncate = false;
  EXPECT_EQ(FieldOf(Prepare(request, *model_).status()), "tokens.lengths[1]");
}

TEST_F(PrepareTest, CopiesTheRowsThatAreKept) {
  constexpr int64_t kTokens = 45, kHidden = 24;
  std::vector<float> values(kTokens * kHidden);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(values));
  EncodeRequest request = Embeddings({kTokens, kHidden}, bytes, {3, 36, 6});
  auto& input = std::get<EmbeddingInput>(request.input);
  // Pieces with arbitrary boundaries, some of them empty.
  input.values.pieces = {bytes.first(0), bytes.first(7), bytes.subspan(7, 3000),
                         bytes.subspan(3007, 0), bytes.subspan(3007)};
  EXPECT_EQ(BadField(request), "");
  const auto prepared = Prepare(request, *model_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_TRUE(prepared->ids.empty());
  std::vector<float> copied(prepared->tokens() * kHidden);
  auto* to = reinterpret_cast<std::byte*>(copied.data());
  ASSERT_TRUE(CopyEmbeddings(input, *prepared, to).ok());
  std::vector<float> expected(values.begin(), values.begin() + 35 * kHidden);
  expected.insert(expected.end(), values.begin() + 39 * kHidden, values.end());
  EXPECT_EQ(copied, expected);

  // The same from a file, and from one that ends too soon.
  const SharedObject object(12 + static_cast<int64_t>(bytes.size()));
  object.Write(12, bytes);
  input.values.pieces.clear();
  input.values.file = FileRange{object.descriptor(), 12, static_cast<int64_t>(bytes.size())};
  EXPECT_EQ(BadField(request), "");
  copied.assign(copied.size(), 0);
  ASSERT_TRUE(CopyEmbeddings(input, *prepared, to).ok());
  EXPECT_EQ(copied, expected);
  object.Cut(object.size() - 1);
  EXPECT_EQ(FieldOf(CopyEmbeddings(input, *prepared, to)), "embeddings.values.shared_memory");
  input.values.file->size -= 1;
  EXPECT_EQ(BadField(request), "embeddings.values.shared_memory");
}

// Tokenizers give a pair's second text type 1 whatever the model has.
TEST_F(PrepareTest, AModelOfOneTypeIsNotToldOfPairs) {
  const EncodeRequest pair = Texts({"the cat"}, {"the mat"});
  EXPECT_EQ(Prepare(pair, *model_)->type_ids.back(), 1);
  TinyModel files;
  files.EditJson("config.json", [](nlohmann::json& config) { config["type_vocab_size"] = 1; });
  files.EditWeights([](std::map<std::string, RawTensor>& weights) {
    RawTensor& types = weights.at("embeddings.token_type_embeddings.weight");
    types.shape[0] = 1;
    types.data.resize(types.data.size() / 2);
  });
  const auto model = files.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(Prepare(pair, **model)->type_ids.empty());
}

TEST_F(PrepareTest, NeverMakesMoreTokensThanEstimated) {
  const unsigned seed = TestSeed();
  std::mt19937 rng(seed);
  const std::vector<std::string> parts = {
      "a",        "cats",  " ",           ".", "\xce\x90", "\xe4\xb8\xad", "\xef\xb7\xba",
      "\xc4\xb0", "[SEP]", "\xe1\xbe\x82"};
  for (int i = 0; i < 500; ++i) {
    std::string text, pair;
    for (int n = std::uniform_int_distribution(0, 9)(rng); n > 0; --n) {
      text += parts[std::uniform_int_distribution<size_t>(0, parts.size() - 1)(rng)];
      if (n % 2 == 0) pair += parts[std::uniform_int_distribution<size_t>(0, 4)(rng)];
    }
    EncodeRequest request = i % 2 == 0 ? Texts({text, pair}) : Texts({text}, {pair});
    std::get<TextInput>(request.input).allow_special_tokens = i % 3 == 0;
    const auto prepared = Prepare(request, *model_);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_LE(prepared->tokens(), model_->EstimateTokens(request)) << text << " seed " << seed;
  }
  EXPECT_EQ(model_->EstimateTokens(Texts({std::string_view("x"), std::string(90, 'x')})), 10 + 32);
  EXPECT_EQ(
      model_->EstimateTokens(Tokens({.ids = std::vector<int64_t>(45), .lengths = {3, 36, 6}})),
      3 + 32 + 6);
  EXPECT_EQ(model_->EstimateTokens(Tokens({.ids = std::vector<int64_t>(45)})), 32);
}

// Prompts against sentence-transformers (tests/golden/encoder/make_prompts.py): by name, by
// default, none, pooled with the text and left out.

json Golden() { return json::parse(ReadFile(GoldenDirectory() + "/prompts.json")); }

ModelPtr LoadWith(const json& golden, const json& pooling) {
  TinyModel files;
  files.EditJson("1_Pooling/config.json", [&](json& config) {
    config = pooling;
    config["word_embedding_dimension"] = kHidden;
  });
  const json settings = {{"prompts", golden["prompts"]},
                         {"default_prompt_name", golden["default"]}};
  WriteFile(files / "config_sentence_transformers.json", settings.dump());
  auto model = files.Load();
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return nullptr;
  auto loaded = std::make_shared<LoadedModel>();
  loaded->info = (*model)->info();
  loaded->encoder = *model;
  return loaded;
}

// As the engine stages and runs it.
std::vector<float> Embed(const ModelPtr& model, EncodeRequest request) {
  const auto pool = MakeHostPool(SystemMemory(), 0);
  EncodeWork work = OpenEncode(std::move(request), model, Vanilla{});
  if (std::holds_alternative<TextInput>(work.request.input)) CopyTexts(&work);
  const auto prepared = PrepareEncode({}, &work);
  EXPECT_TRUE(prepared.ok() && *prepared) << prepared.status();
  EXPECT_TRUE(StageEncode(*pool, &work).ok());
  const absl::Status status =
      RunOnHost({.model = model->encoder, .kernel = Vanilla{}, .items = work.items()}, RunToEnd());
  EXPECT_TRUE(status.ok()) << status;
  const BatchItem& item = work.outputs.front().item;
  return {item.output, item.output + item.output_rows() * item.dimensions};
}

TEST(PromptsTest, MatchSentenceTransformers) {
  const json golden = Golden();
  const std::vector<std::string> texts = golden["texts"];
  for (const json& expected : golden["cases"]) {
    const std::string pooling = expected["pooling"];
    const ModelPtr model =
        LoadWith(golden, {{pooling, true}, {"include_prompt", expected["include_prompt"]}});
    ASSERT_NE(model, nullptr);
    EncodeRequest request;
    TextInput input;
    input.texts.assign(texts.begin(), texts.end());
    request.input = input;
    if (!expected["prompt"].is_null()) request.prompt_name = expected["prompt"];
    const std::vector<float> rows = Embed(model, request);
    ASSERT_EQ(rows.size(), texts.size() * kHidden);
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(rows[i], expected["rows"][i / kHidden][i % kHidden].get<double>(), 5e-6)
          << pooling << ", include_prompt " << expected["include_prompt"] << ", prompt "
          << expected["prompt"] << ", text " << i / kHidden << ", dimension " << i % kHidden;
    }
  }
}

TEST(PromptsTest, AreListedAndChecked) {
  const ModelPtr model =
      LoadWith(Golden(), {{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  ASSERT_NE(model, nullptr);
  const Prompts& prompts = model->info.prompts;
  ASSERT_EQ(prompts.all.size(), 4u);
  EXPECT_EQ(prompts.default_name, "dog");
  EXPECT_EQ(prompts.all[0].name, "dog");
  EXPECT_EQ(prompts.all[0].text, "the dog: ");
  EXPECT_EQ(prompts.all[0].left_out, 4);  // [CLS] the dog [UNK]
  EXPECT_EQ(prompts.all[2].left_out, 0);  // empty

  EncodeRequest request;
  TextInput input;
  input.texts = {"a"};
  request.input = input;
  ASSERT_NE(PromptOf(request, prompts), nullptr);
  EXPECT_EQ(PromptOf(request, prompts)->name, "dog");
  request.prompt_name = "cat";
  const absl::Status unknown = model->encoder->CheckInput(request, 8, 100);
  EXPECT_EQ(FieldOf(unknown), "prompt_name");
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr(R"(known are "dog", "joined", "none", "spaced")"));
  request.prompt_name = "";
  EXPECT_TRUE(model->encoder->CheckInput(request, 8, 100).ok());
  EXPECT_EQ(PromptOf(request, prompts), nullptr);

  request.input = TokenInput{.ids = {2, 3}, .type_ids = {}, .lengths = {}};
  EXPECT_TRUE(model->encoder->CheckInput(request, 8, 100).ok());
  request.prompt_name = "dog";
  EXPECT_EQ(FieldOf(model->encoder->CheckInput(request, 8, 100)), "prompt_name");
  request.prompt_name.reset();
  EXPECT_EQ(PromptOf(request, prompts), nullptr);
}

}  // namespace
}  // namespace castor::encoder
