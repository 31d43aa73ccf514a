// One key of a model directory at a time says something else: the answer is what
// sentence-transformers and transformers compute then (tests/golden/encoder/make_variations.py), or
// the model is refused and the file named. None is silently different.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/prompts.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void Apply(const json& edit, const TinyModel& model) {
  const std::string path = model / edit["file"].get<std::string>();
  if (edit.contains("text")) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    WriteFile(path, edit["text"]);
  } else if (edit.contains("replace")) {
    std::string text = ReadFile(path);
    const std::string before = edit["replace"][0], after = edit["replace"][1];
    const size_t at = text.rfind(before);
    ASSERT_NE(at, std::string::npos) << edit;
    WriteFile(path, text.replace(at, before.size(), after));
  } else if (edit.contains("delete")) {
    std::filesystem::remove(path);
  } else if (edit.contains("rename")) {
    const std::filesystem::path to = model / edit["rename"].get<std::string>();
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::rename(path, to);
  } else {
    json document = json::parse(ReadFile(path));
    const json::json_pointer pointer(edit["pointer"].get<std::string>());
    json& container = document[pointer.parent_pointer()];
    if (edit.contains("value")) {
      document[pointer] = edit["value"];
    } else if (container.is_array()) {
      container.erase(static_cast<size_t>(std::stoi(pointer.back())));
    } else {
      container.erase(pointer.back());
    }
    WriteFile(path, document.dump());
  }
}

// The rows of one output of one text; an error if the request is refused.
absl::StatusOr<std::vector<float>> Rows(std::shared_ptr<const Model> model, const json& expected,
                                        EncodeOutput output, bool split, bool ids) {
  EncodeRequest request;
  request.output = output;
  const std::string first = expected["text"];
  const std::string second = expected["pair"].is_null() ? "" : expected["pair"];
  TextInput input{.texts = {first}, .pairs = {}, .allow_special_tokens = !split};
  if (!expected["pair"].is_null()) input.pairs = {second};
  request.input = input;
  if (expected.contains("task") && !expected["task"].is_null()) {
    request.prompt_name = expected["task"].get<std::string>();
  }
  if (LooksUp(request, model->info())) model = {model, model->lookup()};
  if (absl::Status s = model->CheckInput(request, 8, 1 << 20); !s.ok()) return s;
  absl::StatusOr<Prepared> prepared = Prepare(request, *model);
  if (!prepared.ok()) return prepared.status();
  if (ids && expected.contains("ids")) {
    EXPECT_EQ(prepared->ids, expected["ids"].get<std::vector<int64_t>>()) << first;
  }
  return RowsOf(model, request, *prepared);
}

// How the model's answers differ from `result`; empty: they do not.
std::string Difference(const std::shared_ptr<Model>& model, const json& result, bool split) {
  if (result.contains("labels")) {
    std::vector<std::string> labels;
    for (const json& label : result["labels"]) {
      labels.push_back(label.is_string() ? label.get<std::string>() : label.dump());
    }
    // The library lists them as the file does, not by their columns.
    std::vector<std::string> ours = model->info().labels;
    std::sort(ours.begin(), ours.end());
    std::sort(labels.begin(), labels.end());
    if (ours != labels) return "other labels";
  }
  for (const json& expected : result["cases"]) {
    for (const EncodeOutput output : kAllOutputs) {
      const std::string name(OutputName(output));
      if (!expected.contains(name)) continue;
      const auto rows = Rows(model, expected, output, split, /*ids=*/true);
      if (!rows.ok()) return std::string(rows.status().message());
      std::vector<float> right;
      for (const json& row : expected[name]) right.insert(right.end(), row.begin(), row.end());
      if (rows->size() != right.size()) return name + " of another size";
      for (size_t i = 0; i < right.size(); ++i) {
        const double difference = std::abs(double{(*rows)[i]} - right[i]);
        if (!(difference <= 2e-5)) return name + " differs by " + std::to_string(difference);
      }
    }
  }
  return "";
}

bool NamesAFile(const std::string& error, const json& edits) {
  return std::any_of(edits.begin(), edits.end(), [&](const json& edit) {
    const std::filesystem::path file = edit["file"].get<std::string>();
    const std::filesystem::path renamed = edit.value("rename", file.string());
    return error.find(file.filename()) != std::string::npos ||
           error.find(renamed.filename()) != std::string::npos;
  });
}

const json& Golden() {
  static const json* golden =
      new json(json::parse(ReadFile(GoldenDirectory() + "/directories/variations.json")));
  return *golden;
}

class DirectoryVariationsTest : public testing::TestWithParam<std::string> {};

TEST_P(DirectoryVariationsTest, AnswerAsTheLibrariesOrAreRefusedByName) {
  const json& base = Golden().at("bases").at(GetParam());
  const auto plain = TinyModel("directories/" + GetParam()).Load();
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(Difference(*plain, base["results"][0], /*split=*/false), "");
  int same = 1, refused = 0;
  for (const json& variation : base["variations"]) {
    const json& edits = variation["edits"];
    SCOPED_TRACE(edits.dump());
    if (variation.value("apart", false)) continue;
    TinyModel files("directories/" + GetParam());
    for (const json& edit : edits) Apply(edit, files);
    if (HasFatalFailure()) return;
    const json& result = base["results"][variation["result"].get<size_t>()];
    const auto model = files.Load();
    if (!model.ok()) {
      const std::string error(model.status().message());
      ++refused;
      EXPECT_TRUE(NamesAFile(error, edits)) << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      if (!result.contains("error")) std::cout << "refused: " << error << "\n";
      continue;
    }
    if (result.contains("error")) {
      ADD_FAILURE() << "is served, where the library says " << result["error"];
      continue;
    }
    ++same;
    EXPECT_EQ(Difference(*model, result, variation.value("split", false)), "");
  }
  std::cout << same << " as the libraries, " << refused << " refused\n";
  EXPECT_GT(same, refused / 4);
}

// As they are; also those that only their publishers' code reads (new-...).
TEST(DirectoriesTest, AnswerAsTheLibraries) {
  int directories = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(GoldenDirectory() + "/directories")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    const auto model = LoadOnCpu(entry.path().string(), DType::kFloat32);
    ASSERT_TRUE(model.ok()) << model.status();
    const json expected = json::parse(ReadFile(entry.path().string() + "/expected.json"));
    EXPECT_EQ(Difference(*model, expected, /*split=*/false), "");
    ++directories;
  }
  EXPECT_GE(directories, 24);
}

std::vector<std::string> Bases() {
  std::vector<std::string> names;
  for (const auto& [name, base] : Golden().at("bases").items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, DirectoryVariationsTest, testing::ValuesIn(Bases()),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Behaviour that cannot be compared with the libraries: settings that a
// request overrides, the similarity, and tokenizers that are large or grow their texts.

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
