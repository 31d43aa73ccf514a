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
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/text/output_types.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;

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
absl::StatusOr<std::vector<float>> Rows(const std::shared_ptr<Model>& model, const json& expected,
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

}  // namespace
}  // namespace castor::encoder
