// The table of keys: what it says of each, and that it knows every key that the libraries write.
#include "engine/encoder/directory/directory_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::HasSubstr;

std::string ErrorOf(File file, const nlohmann::json& object) {
  return std::string(CheckKeys(file, object, "file").message());
}

std::vector<std::string> NamesOf(const Key& key) {
  return absl::StrSplit(std::string(key.names), ' ');
}

TEST(DirectoryKeysTest, NamesNoKeyTwice) {
  std::set<std::pair<File, std::string>> seen;
  for (const Key& key : DirectoryKeys()) {
    for (const std::string& name : NamesOf(key)) {
      EXPECT_TRUE(seen.insert({key.file, name}).second) << name;
      EXPECT_EQ(FindKey(key.file, name), &key) << name;
    }
    EXPECT_FALSE(key.reader.empty()) << key.names;
    EXPECT_EQ(key.use == Use::kRefused, !key.why.empty()) << key.names;
  }
  EXPECT_EQ(FindKey(File::kModules, "type path"), nullptr);
  EXPECT_EQ(FindKey(File::kModules, "typ"), nullptr);
  EXPECT_EQ(FindKey(File::kModules, ""), nullptr);
}

TEST(DirectoryKeysTest, RefusesByNameWhatWouldChangeAnswers) {
  for (const Key& key : DirectoryKeys()) {
    if (key.use != Use::kRefused) continue;
    for (const std::string& name : NamesOf(key)) {
      const std::string error = ErrorOf(key.file, {{name, "another value"}});
      EXPECT_THAT(error, HasSubstr("file: " + name + ": is \"another value\""));
      EXPECT_THAT(error, HasSubstr(std::string(key.why)));
    }
  }
  EXPECT_EQ(ErrorOf(File::kConfig, {{"is_decoder", false}, {"quantization_config", nullptr}}), "");
}

TEST(DirectoryKeysTest, UnknownKeysEndTheStartWhereTheyEndTheLibrary) {
  EXPECT_EQ(ErrorOf(File::kConfig, {{"my_own", 1}}), "");
  EXPECT_EQ(ErrorOf(File::kTokenizerConfig, {{"my_own", 1}, {"image_token", "<i>"}}), "");
  EXPECT_THAT(ErrorOf(File::kPooling, {{"my_own", 1}}), HasSubstr("file: my_own: is not known"));
  EXPECT_THAT(ErrorOf(File::kTransformer, {{"my_own", 1}}), HasSubstr("is not known"));
}

// What a file of a directory is; none: it has no keys of its own.
std::optional<File> FileOf(const std::filesystem::path& path) {
  static const std::map<std::string, File> kNames = {
      {"tokenizer_config.json", File::kTokenizerConfig},
      {"special_tokens_map.json", File::kSpecialTokensMap},
      {"sentence_bert_config.json", File::kTransformer},
      {"config_sentence_transformers.json", File::kSentenceTransformers},
  };
  const std::string name = path.filename();
  if (const auto found = kNames.find(name); found != kNames.end()) return found->second;
  if (name != "config.json") return std::nullopt;
  static const std::map<std::string, File> kModules = {
      {"Pooling", File::kPooling},       {"Dense", File::kDense},
      {"Normalize", File::kNormalize},   {"SpladePooling", File::kSplade},
      {"LogitScore", File::kLogitScore}, {"LayerNorm", File::kLayerNorm},
      {"Dropout", File::kDropout},       {"MultiVectorMask", File::kMultiVectorMask},
  };
  const std::string folder = path.parent_path().filename();
  const size_t mark = folder.find('_');  // "1_Pooling"
  if (mark != 1 || folder[0] < '0' || folder[0] > '9') return File::kConfig;
  const auto found = kModules.find(folder.substr(mark + 1));
  return found == kModules.end() ? File::kConfig : found->second;
}

// The directories were written by the versions of the libraries that are pinned.
TEST(DirectoryKeysTest, KnowsEveryKeyThatTheLibrariesWrite) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GoldenDirectory())) {
    const std::optional<File> file = FileOf(entry.path());
    if (!file.has_value()) continue;
    ++files;
    const nlohmann::json json = nlohmann::json::parse(ReadFile(entry.path()));
    for (const auto& [name, value] : json.items()) {
      EXPECT_NE(FindKey(*file, name), nullptr) << entry.path() << ": " << name;
    }
  }
  EXPECT_GE(files, 60);
}

}  // namespace
}  // namespace castor::encoder
