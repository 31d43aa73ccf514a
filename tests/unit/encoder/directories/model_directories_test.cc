// Behaviour that directory_variations_test.cc cannot compare with the libraries: settings that a
// request overrides, the similarity, and tokenizers that are large or grow their texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/encoder/model.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

EncodeRequest TextOf(std::string_view text) {
  EncodeRequest request;
  request.input = TextInput{.texts = {text}, .pairs = {}};
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

void Write(const TinyModel& files, const std::string& name, const json& content) {
  WriteFile(files / name, content.dump());
}

constexpr char kTokenizer[] = "tokenizer_config.json";

TEST(ModelDirectoriesTest, ARequestSaysWhereItsTextsAreCut) {
  const TinyModel files;
  Write(files, kTokenizer, {{"truncation_side", "left"}, {"model_max_length", 8}});
  EncodeRequest request = TextOf("the cat sat on the mat dog ran far away");
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 8, 12, 14, 15, 16, 17, 3));
  request.truncation_side = Side::kRight;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 8, 9, 10, 11, 8, 12, 3));
  request.max_tokens = 4;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 8, 9, 3));
  request.truncation_side = Side::kLeft;
  EXPECT_THAT(Ids(files, request), ElementsAre(2, 16, 17, 3));
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

TEST(ModelDirectoriesTest, WithoutTokenizerJsonTheCommandThatMakesItIsNamed) {
  const TinyModel files;
  std::filesystem::rename(files / "tokenizer.json", files / "sentencepiece.bpe.model");
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("/tokenizer.json: it is missing; "
                                              "sentencepiece.bpe.model is there"),
                                    HasSubstr("python3 -c 'from transformers")));
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
  EXPECT_THAT(Ids(files, TextOf("the added19999! cat")), ElementsAre(2, 8, 20'024, 9, 3));
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
  EXPECT_TRUE(Prepare(TextOf("aaaa"), *model).ok());
  const std::string many(200'000, 'a');
  const auto refused = Prepare(TextOf(many), *model);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("too long"));
}

}  // namespace
}  // namespace castor::encoder
