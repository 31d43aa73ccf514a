// Directories as people have them, from public reports, with the values that sentence-transformers
// and transformers give: settings of tokenizers, poolings, cross-encoders and sparse encoders as
// newer versions write them, old files without a tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/tokenizer_files.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

EncodeRequest TextsOf(const std::vector<std::string_view>& texts,
                      const std::vector<std::string_view>& pairs = {}) {
  EncodeRequest request;
  request.input = TextInput{.texts = texts, .pairs = pairs};
  return request;
}

std::shared_ptr<Model> Load(const TinyModel& files) {
  const auto model = files.Load();
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

std::vector<int64_t> Ids(const TinyModel& files, const EncodeRequest& request) {
  const auto model = Load(files);
  if (model == nullptr) return {};
  const auto prepared = Prepare(request, *model);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return prepared.ok() ? prepared->ids : std::vector<int64_t>();
}

std::vector<float> Rows(const TinyModel& files, EncodeRequest request, EncodeOutput output) {
  const auto model = Load(files);
  if (model == nullptr) return {};
  request.output = output;
  EXPECT_EQ(model->CheckInput(request, 64, 1 << 20), absl::OkStatus());
  const auto prepared = Prepare(request, *model);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  if (!prepared.ok()) return {};
  const auto rows = RowsOf(model, request, *prepared);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<float>();
}

void Write(const TinyModel& files, const std::string& name, const json& content) {
  const std::filesystem::path path = files / name;
  std::filesystem::create_directories(path.parent_path());
  WriteFile(path, content.dump());
}

constexpr char kTokenizer[] = "tokenizer_config.json";
const std::vector<std::string_view> kCats = {"The CAT sat. A b"};

// Cross-encoders as sentence-transformers 5.4 and later save them.
TEST(ModelDirectoriesTest, ACrossEncoderWithModulesScores) {
  const auto saved = [](const std::string& name, const std::string& activation) {
    TinyModel files(name);
    Write(files, "modules.json",
          {{{"idx", 0},
            {"name", "0"},
            {"path", ""},
            {"type", "sentence_transformers.base.modules.transformer.Transformer"}}});
    Write(
        files, "sentence_bert_config.json",
        {{"transformer_task", "sequence-classification"},
         {"modality_config", {{"text", {{"method", "forward"}, {"method_output_name", "logits"}}}}},
         {"module_output_name", "scores"}});
    Write(files, "config_sentence_transformers.json",
          {{"__version__", {{"sentence_transformers", "6.2.0"}}},
           {"activation_fn", activation},
           {"default_prompt_name", nullptr},
           {"model_type", "CrossEncoder"},
           {"prompts", json::object()}});
    return Rows(files, TextsOf({"a b", "the"}, {"c d", "dam"}), EncodeOutput::kScores);
  };
  EXPECT_THAT(saved("heads/cross_encoder", "torch.nn.modules.activation.Sigmoid"),
              ElementsAre(FloatNear(0.17791599F, 2e-5F), FloatNear(0.15488513F, 2e-5F)));
  EXPECT_THAT(saved("heads/cross_encoder_identity", "torch.nn.modules.linear.Identity"),
              ElementsAre(FloatNear(-1.4299634F, 2e-5F), FloatNear(0.42472345F, 2e-5F)));
}

TEST(ModelDirectoriesTest, BertsSettingsReplaceTheFilesNormalizer) {
  TinyModel files;
  const auto ids = [&](const json& settings, bool lowers) {
    Write(files, kTokenizer, settings);
    files.EditJson("tokenizer.json", [&](json& file) { file["normalizer"]["lowercase"] = lowers; });
    return Ids(files, TextsOf(kCats));
  };
  EXPECT_THAT(ids({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}}, true),
              ElementsAre(2, 1, 1, 10, 18, 1, 21, 3));
  EXPECT_THAT(ids({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", true}}, false),
              ElementsAre(2, 8, 9, 10, 18, 20, 21, 3));
  // An absent key has the class's default, and an absent class that of the model type.
  EXPECT_THAT(ids(json::object(), false), ElementsAre(2, 8, 9, 10, 18, 20, 21, 3));
  Write(files, kTokenizer, {{"tokenizer_class", "PreTrainedTokenizerFast"}});
  EXPECT_THAT(Ids(files, TextsOf({"The CAT sat"})), ElementsAre(2, 1, 1, 10, 3));
}

TEST(ModelDirectoriesTest, SentenceTransformersLowersBeforeTheNormalizer) {
  TinyModel files;
  Write(files, "sentence_bert_config.json", {{"max_seq_length", 512}, {"do_lower_case", true}});
  EXPECT_THAT(Ids(files, TextsOf(kCats)), ElementsAre(2, 8, 9, 10, 18, 20, 21, 3));
  Write(files, kTokenizer, {{"tokenizer_class", "PreTrainedTokenizerFast"}});
  files.EditJson("tokenizer.json", [](json& file) { file["normalizer"]["lowercase"] = false; });
  EXPECT_THAT(Ids(files, TextsOf(kCats)), ElementsAre(2, 8, 9, 10, 18, 20, 21, 3));
}

TEST(ModelDirectoriesTest, TextsAreCutWhereTheTokenizerSays) {
  constexpr std::string_view kLong = "the cat sat on the mat dog ran far away";
  TinyModel files;
  Write(files, kTokenizer, {{"truncation_side", "left"}, {"model_max_length", 8}});
  EXPECT_THAT(Ids(files, TextsOf({kLong})), ElementsAre(2, 8, 12, 14, 15, 16, 17, 3));
  Write(files, kTokenizer, {{"model_max_length", 8}});
  files.EditJson("tokenizer.json", [](json& file) {
    file["truncation"] = {
        {"direction", "Left"}, {"max_length", 5}, {"strategy", "LongestFirst"}, {"stride", 0}};
  });
  EXPECT_THAT(Ids(files, TextsOf({kLong})), ElementsAre(2, 8, 12, 14, 15, 16, 17, 3));
  EncodeRequest request = TextsOf({kLong});
  request.truncation_side = Side::kRight;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 8, 9, 10, 11, 8, 12, 3));
  request.max_tokens = 4;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 8, 9, 3));
  request.truncation_side = Side::kLeft;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 16, 17, 3));
}

TEST(ModelDirectoriesTest, TypeIdsAreThereIfTheTokenizerNamesThem) {
  TinyModel files("heads/bert_sequences");
  Write(files, kTokenizer, {{"model_input_names", {"input_ids", "attention_mask"}}});
  EXPECT_THAT(
      Rows(files, TextsOf({"a b"}, {"c d"}), EncodeOutput::kScores),
      ElementsAre(FloatNear(0.0760F, 6e-5F), FloatNear(0.5712F, 6e-5F), FloatNear(0.3528F, 6e-5F)));
}

TEST(ModelDirectoriesTest, RobertaPutsASpaceBeforeTextsIfAsked) {
  TinyModel files("families/roberta");
  Write(files, kTokenizer, {{"tokenizer_class", "RobertaTokenizer"}, {"add_prefix_space", true}});
  EXPECT_THAT(Ids(files, TextsOf({"the cat"})), ElementsAre(0, 279, 312, 68, 87, 2));
  EXPECT_THAT(Ids(files, TextsOf({"hello"})), ElementsAre(0, 224, 266, 79, 79, 82, 2));
  Write(files, kTokenizer, {{"tokenizer_class", "RobertaTokenizer"}});
  EXPECT_THAT(Ids(files, TextsOf({"the cat"})), ElementsAre(0, 87, 266, 312, 68, 87, 2));
}

TEST(ModelDirectoriesTest, TruncateDimCutsRowsAsTheyAre) {
  TinyModel files;
  const auto whole = Rows(files, TextsOf({"the cat"}), EncodeOutput::kPooled);
  Write(files, "config_sentence_transformers.json", {{"truncate_dim", 8}});
  const auto cut = Rows(files, TextsOf({"the cat"}), EncodeOutput::kPooled);
  ASSERT_EQ(cut.size(), 8U);
  EXPECT_THAT(cut, Pointwise(FloatNear(1e-6F), std::vector(whole.begin(), whole.begin() + 8)));
}

TEST(ModelDirectoriesTest, TheSimilarityIsSaid) {
  TinyModel files;
  const auto said = [&](const json& config) {
    Write(files, "config_sentence_transformers.json", config);
    const auto model = Load(files);
    return model == nullptr ? "not loaded" : model->info().similarity;
  };
  EXPECT_EQ(said({{"similarity_fn_name", "dot"}}), "dot");
  EXPECT_EQ(said({{"similarity_fn_name", nullptr}}), "");
  EXPECT_EQ(said(json::object()), "");
}

TEST(ModelDirectoriesTest, PoolingsOfNewerFilesAreRead) {
  TinyModel files("heads/dense");
  const json now = {
      {"embedding_dimension", 16}, {"pooling_mode", "mean"}, {"include_prompt", true}};
  Write(files, "1_Pooling/config.json", now);
  const auto row = Rows(files, TextsOf({"a beaver"}), EncodeOutput::kPooled);
  ASSERT_GE(row.size(), 3U);
  EXPECT_NEAR(row[0], -0.51554847, 2e-5);
  EXPECT_NEAR(row[1], -0.45029566, 2e-5);
  EXPECT_NEAR(row[2], 0.25152755, 2e-5);
}

TEST(ModelDirectoriesTest, SeveralPoolingsStandSideBySide) {
  TinyModel files;
  const auto with = [&](const json& pooling) {
    Write(files, "1_Pooling/config.json", pooling);
    return Rows(files, TextsOf({"the cat sat"}), EncodeOutput::kPooled);
  };
  const auto of = [&](const std::string& mode) {
    return with({{"embedding_dimension", kHidden}, {"pooling_mode", mode}});
  };
  std::vector<float> right = of("cls");
  for (const char* mode : {"max", "mean", "mean_sqrt_len_tokens"}) {
    const auto next = of(mode);
    right.insert(right.end(), next.begin(), next.end());
  }
  const auto flags = with({{"word_embedding_dimension", kHidden},
                           {"pooling_mode_mean_sqrt_len_tokens", true},
                           {"pooling_mode_mean_tokens", true},
                           {"pooling_mode_max_tokens", true},
                           {"pooling_mode_cls_token", true}});
  EXPECT_EQ(flags, right);
}

TEST(ModelDirectoriesTest, WordPieceIsMadeOfAVocabulary) {
  TinyModel files;
  const json file = json::parse(ReadFile(files / "tokenizer.json"));
  std::vector<std::string> words(file["model"]["vocab"].size());
  for (const auto& [word, id] : file["model"]["vocab"].items()) words[id.get<size_t>()] = word;
  const auto right = Ids(files, TextsOf(kCats));
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  std::filesystem::remove(files / "tokenizer.json");
  WriteFile(files / "vocab.txt", text);
  EXPECT_EQ(Ids(files, TextsOf(kCats)), right);
  // What has no such file is told how to make a tokenizer.json.
  std::filesystem::rename(files / "vocab.txt", files / "sentencepiece.bpe.model");
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("/tokenizer.json: it is missing; "
                                              "sentencepiece.bpe.model is there"),
                                    HasSubstr("python3 -c 'from transformers")));
}

TEST(ModelDirectoriesTest, BytePairsAreMadeOfAVocabularyAndMerges) {
  TinyModel files("families/roberta");
  Write(files, kTokenizer, {{"tokenizer_class", "RobertaTokenizer"}});
  const std::vector<std::string_view> texts = {"the cat sat", " on  the Mat\u00e9", ""};
  const auto right = Ids(files, TextsOf(texts));
  const json model = json::parse(ReadFile(files / "tokenizer.json"))["model"];
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model["merges"]) {
    merges += merge.is_string() ? merge.get<std::string>()
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges += "\n";
  }
  std::filesystem::remove(files / "tokenizer.json");
  WriteFile(files / "vocab.json", model["vocab"].dump());
  WriteFile(files / "merges.txt", merges);
  EXPECT_EQ(Ids(files, TextsOf(texts)), right);
}

TEST(ModelDirectoriesTest, SparseEncodersOfNewerFilesAreRead) {
  TinyModel files("heads/splade_bert");
  const json expected = json::parse(ReadFile(files / "expected.json"))["cases"][0];
  files.EditJson("modules.json", [](json& modules) {
    modules[0]["type"] = "sentence_transformers.base.modules.transformer.Transformer";
    modules[1]["type"] =
        "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling";
  });
  Write(files, "sentence_bert_config.json",
        {{"transformer_task", "fill-mask"},
         {"modality_config", {{"text", {{"method", "forward"}, {"method_output_name", "logits"}}}}},
         {"module_output_name", "token_embeddings"}});
  files.EditJson("1_SpladePooling/config.json", [](json& pooling) {
    pooling["embedding_dimension"] = pooling["word_embedding_dimension"];
    pooling.erase("word_embedding_dimension");
  });
  files.EditJson("config_sentence_transformers.json",
                 [](json& config) { config["model_type"] = "SparseEncoder"; });
  const std::string text = expected["text"];
  EXPECT_THAT(Rows(files, TextsOf({text}), EncodeOutput::kSparse),
              Pointwise(FloatNear(2e-5F), expected["SPARSE"][0].get<std::vector<float>>()));
}

TEST(ModelDirectoriesTest, JsonIsReadAsPythonReadsIt) {
  TinyModel files;
  WriteFile(files / kTokenizer, R"({"model_max_length": 5, "model_max_length": Infinity})");
  EXPECT_EQ(ErrorOf(files), "");
  WriteFile(files / "config_sentence_transformers.json", R"({"truncate_dim": NaN})");
  EXPECT_THAT(ErrorOf(files), HasSubstr("truncate_dim: must be an integer"));
  WriteFile(files / "config_sentence_transformers.json", "\xef\xbb\xbf{}");
  EXPECT_THAT(ErrorOf(files), HasSubstr("byte order mark"));
}

TEST(ModelDirectoriesTest, TheClassInChargeIsTheLibrarys) {
  EXPECT_EQ(TokenizerClassOf("bert", ""), "BertTokenizer");
  EXPECT_EQ(TokenizerClassOf("bert", "DistilBertTokenizerFast"), "DistilBertTokenizer");
  EXPECT_EQ(TokenizerClassOf("distilbert", ""), "BertTokenizer");
  EXPECT_EQ(TokenizerClassOf("xlm-roberta", "PreTrainedTokenizerFast"), "TokenizersBackend");
  EXPECT_EQ(TokenizerClassOf("modernbert", "BertTokenizer"), "TokenizersBackend");
  EXPECT_EQ(TokenizerClassOf("eurobert", ""), "TokenizersBackend");
  EXPECT_EQ(TokenizerClassOf("new", "XLMRobertaTokenizerFast"), "XLMRobertaTokenizer");
  TinyModel files;
  Write(files, kTokenizer, {{"tokenizer_class", "MyTokenizer"}});
  EXPECT_THAT(ErrorOf(files), HasSubstr("tokenizer_config.json: tokenizer_class: \"MyTokenizer\""));
}

// Thousands of added tokens take the time that each takes.
TEST(ModelDirectoriesTest, TakesManyAddedTokens) {
  TinyModel files;
  Write(files, kTokenizer, {{"tokenizer_class", "PreTrainedTokenizerFast"}});
  files.EditJson("config.json", [](json& config) { config["vocab_size"] = 20'025; });
  files.EditWeights([](std::map<std::string, RawTensor>& weights) {
    RawTensor& words = weights.at("embeddings.word_embeddings.weight");
    words.data.resize(words.data.size() / static_cast<size_t>(words.shape[0]) * 20'025);
    words.shape[0] = 20'025;
  });
  files.EditJson("tokenizer.json", [](json& file) {
    for (int i = 0; i < 20'000; ++i) {
      file["added_tokens"].push_back({{"id", 25 + i},
                                      {"content", "added" + std::to_string(i) + "!"},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", true},
                                      {"special", false}});
    }
  });
  EXPECT_THAT(Ids(files, TextsOf({"the added19999! cat"})), ElementsAre(2, 8, 20'024, 9, 3));
}

TEST(ModelDirectoriesTest, ANormalizerMayNotMakeTextsVeryLong) {
  TinyModel files;
  Write(files, kTokenizer, {{"tokenizer_class", "PreTrainedTokenizerFast"}});
  const auto grow = [&](const std::string& content, size_t times) {
    const json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", content}};
    files.EditJson("tokenizer.json", [&](json& file) {
      file["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector(times, step)}};
    });
  };
  grow("aa", 40);
  EXPECT_THAT(ErrorOf(files), HasSubstr("tokenizer.json: normalizer: may make"));
  grow(std::string(500, 'a'), 1);
  const auto model = Load(files);
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(Prepare(TextsOf({"aaaa"}), *model).ok());
  const std::string many(200'000, 'a');
  const auto refused = Prepare(TextsOf({many}), *model);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("too long"));
}

}  // namespace
}  // namespace castor::encoder
