// Model directories that are broken on purpose. Each must be refused when it is loaded, with the
// file named. None may hang, end the process, or fail only later with a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Weights = std::map<std::string, RawTensor>;

std::string WithTokenizer(const std::function<void(json&)>& edit) {
  TinyModel files;
  WriteFile(files / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  files.EditJson("tokenizer.json", edit);
  const std::string error = ErrorOf(files);
  EXPECT_THAT(error, Not(HasSubstr("\n")));
  return error;
}

// All files of a directory that loading may read.
const std::vector<std::string> kFiles = {"config.json",
                                         "tokenizer.json",
                                         "modules.json",
                                         "1_Pooling/config.json",
                                         "sentence_bert_config.json",
                                         "tokenizer_config.json",
                                         "config_sentence_transformers.json",
                                         "model.safetensors",
                                         "model.safetensors.index.json"};

// Removes `name`, and the file that would be read instead of it.
std::string MakeRoom(const TinyModel& files, const std::string& name) {
  std::filesystem::remove(files / name);
  if (name == "model.safetensors.index.json") std::filesystem::remove(files / "model.safetensors");
  return files / name;
}

// As in a clone of a model without git-lfs, where it would read as JSON or weights that are broken.
TEST(HostileDirectoryTest, AGitLfsPointerInPlaceOfAFileIsCalledOne) {
  for (const std::string& name : kFiles) {
    const TinyModel files;
    std::ofstream(MakeRoom(files, name)) << "version https://git-lfs.github.com/spec/v1\n"
                                            "oid sha256:"
                                         << std::string(64, 'a') << "\nsize 90868376\n";
    EXPECT_THAT(ErrorOf(files),
                AllOf(HasSubstr(name), HasSubstr("a git-lfs pointer"), HasSubstr("git lfs pull")));
  }
}

TEST(HostileDirectoryTest, APipeInPlaceOfAFileIsRefused) {
  for (const std::string& name : kFiles) {
    const TinyModel files;
    ASSERT_EQ(mkfifo(MakeRoom(files, name).c_str(), 0600), 0);
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr(name), HasSubstr("is a pipe")));
  }
}

TEST(HostileDirectoryTest, LinksAreFollowedAndMustLeadToAFile) {
  for (const std::string& name : kFiles) {
    SCOPED_TRACE(name);
    const TinyModel files;
    std::filesystem::create_symlink("nothing", MakeRoom(files, name));
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr(name), HasSubstr("is a link to nothing")));
    std::filesystem::remove(files / name);
    std::filesystem::create_directory(files / name);
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr(name), HasSubstr("is a directory")));
    std::filesystem::remove(files / name);
    std::filesystem::create_symlink("/dev/zero", files / name);
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr(name), HasSubstr("is a device")));
  }
  // Links as in a volume that Kubernetes mounts.
  const TinyModel files;
  for (const std::string name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    std::filesystem::rename(files / name, files / (name + ".data"));
    std::filesystem::create_symlink(name + ".data", files / name);
  }
  EXPECT_EQ(ErrorOf(files), "");
}

TEST(HostileDirectoryTest, FilesOfAbsurdSizeAreRefusedUnread) {
  for (const std::string& name : kFiles) {
    const TinyModel files;
    WriteFile(MakeRoom(files, name), "");
    std::filesystem::resize_file(files / name, uint64_t{1} << 42);  // sparse
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr(name), HasSubstr("4398046511104 bytes")));
  }
}

// ---- Weights.

template <typename Element>
std::function<void(Weights&)> Put(const std::string& name, size_t index, Element element,
                                  const std::string& dtype) {
  return [=](Weights& weights) {
    RawTensor& tensor = weights.at(name);
    if (tensor.dtype != dtype) {  // the golden data has four bytes per element
      tensor.data.assign(tensor.data.size() / 4 * sizeof(Element), '\0');
      tensor.dtype = dtype;
    }
    std::memcpy(tensor.data.data() + index * sizeof(Element), &element, sizeof(Element));
  };
}

TEST(HostileDirectoryTest, WeightsThatAreNotFiniteAreRefused) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto with = [](const std::function<void(Weights&)>& edit, DType dtype = DType::kFloat32) {
    TinyModel files;
    files.EditWeights(edit);
    return ErrorOf(files, dtype);
  };
  for (const std::string name :
       {"embeddings.word_embeddings.weight", "embeddings.LayerNorm.bias",
        "encoder.layer.1.attention.self.key.weight", "encoder.layer.0.output.dense.bias"}) {
    EXPECT_THAT(with(Put(name, 5, kNaN, "F32")), AllOf(HasSubstr("model.safetensors: " + name),
                                                       HasSubstr("element 5 is NaN or Inf")));
    EXPECT_THAT(with(Put(name, 0, -kInf, "F32")), HasSubstr(name));
    EXPECT_THAT(with(Put(name, 7, uint16_t{0xfc00}, "F16")), HasSubstr("element 7 is NaN"));
    EXPECT_THAT(with(Put(name, 7, uint16_t{0x7fc0}, "BF16")), HasSubstr("element 7 is NaN"));
    EXPECT_EQ(with(Put(name, 7, uint16_t{0x7bff}, "F16")), "");
  }
  // Finite in the file, but Inf in the dtype that is served.
  const auto large =
      Put("encoder.layer.0.output.dense.bias", 3, std::numeric_limits<float>::max(), "F32");
  EXPECT_EQ(with(large), "");
  EXPECT_THAT(with(large, DType::kBFloat16), HasSubstr("element 3 is too large for BFLOAT16"));
}

// ---- Tokenizers.

// A template of these parts, such as "A:0" or the special token "[CLS]:1".
json Template(const std::vector<std::string>& parts) {
  json list = json::array();
  for (const std::string& part : parts) {
    const std::string id = part.substr(0, part.find(':'));
    list.push_back({{id.size() == 1 ? "Sequence" : "SpecialToken",
                     {{"id", id}, {"type_id", std::stoll(part.substr(id.size() + 1))}}}});
  }
  return list;
}

std::function<void(json&)> Processor(const std::vector<std::string>& single,
                                     const std::vector<std::string>& pair,
                                     const std::vector<int64_t>& ids = {2}) {
  return [=](json& tokenizer) {
    const std::vector<std::string> names(ids.size(), "[CLS]");
    tokenizer["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", Template(single)},
        {"pair", Template(pair)},
        {"special_tokens", {{"[CLS]", {{"id", "[CLS]"}, {"ids", ids}, {"tokens", names}}}}}};
  };
}

// A few kilobytes that became 7 GiB, whether the tokens' number, their texts or the steps multiply.
TEST(HostileDirectoryTest, APostProcessorThatMakesMuchOfOneTokenIsRefusedUnrun) {
  const auto refused =
      AllOf(HasSubstr("tokenizer.json: post_processor: may make "), HasSubstr("at most 4096"));
  std::vector<std::string> many(100'000, "[CLS]:0");
  many.push_back("A:0");
  const std::vector<int64_t> ids(1000, 2);
  EXPECT_THAT(WithTokenizer(Processor(many, {"A:0", "B:1"}, ids)), refused);
  EXPECT_THAT(WithTokenizer(Processor({"A:0"}, many, ids)), refused);
  EXPECT_THAT(WithTokenizer(Processor(std::vector<std::string>(5000, "A:0"), {"A:0"})), refused);
  many.erase(many.begin(), many.end() - 3000);
  EXPECT_THAT(WithTokenizer([&](json& tokenizer) {
                Processor(many, {"A:0", "B:1"})(tokenizer);
                tokenizer["post_processor"]["special_tokens"]["[CLS]"]["tokens"] = {
                    std::string(1 << 20, 'x')};
              }),
              refused);
  EXPECT_THAT(WithTokenizer([&](json& tokenizer) {
                Processor({"[CLS]:0", "A:0"}, std::vector<std::string>(3000, "A:0"),
                          std::vector<int64_t>(3000, 2))(tokenizer);
                tokenizer["post_processor"] = {
                    {"type", "Sequence"},
                    {"processors", {tokenizer["post_processor"], tokenizer["post_processor"]}}};
              }),
              refused);
  EXPECT_EQ(WithTokenizer(Processor({"[CLS]:0", "A:0"}, {"A:0", "B:1"}, {2, 2, 2})), "");
}

TEST(HostileDirectoryTest, EveryIdOfTheTokenizerMustBeInTheEmbeddings) {
  const auto refused = [](int64_t id, const char* what = "highest id is ") {
    return AllOf(HasSubstr("tokenizer.json"), HasSubstr(what + std::to_string(id)));
  };
  EXPECT_THAT(WithTokenizer([](json& tokenizer) { tokenizer["post_processor"]["sep"][1] = 60000; }),
              refused(60000));
  EXPECT_EQ(WithTokenizer([](json& tokenizer) { tokenizer["post_processor"]["sep"][1] = 24; }), "");
  EXPECT_THAT(WithTokenizer(Processor({"[CLS]:0", "A:0"}, {"A:0", "B:1"}, {60000})),
              refused(60000));
  EXPECT_THAT(WithTokenizer(Processor({"A:0"}, {"A:0", "[CLS]:0", "B:1"}, {2, 25})), refused(25));
  // An added token outside the vocabulary gets the next id. A special one is not met in texts.
  for (const bool special : {false, true}) {
    const std::string error = WithTokenizer([&](json& tokenizer) {
      json added = tokenizer["added_tokens"][0];
      added["id"] = 25;
      added["content"] = "[NEW]";
      added["special"] = special;
      tokenizer["added_tokens"].push_back(added);
    });
    if (special) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, refused(25));
    }
  }
  EXPECT_THAT(
      WithTokenizer([](json& tokenizer) { tokenizer["model"]["vocab"]["zz"] = 4294967295; }),
      refused(4294967295));

  const char* type = "highest type id is ";
  EXPECT_THAT(WithTokenizer(Processor({"A:9"}, {"A:0", "B:1"})), refused(9, type));
  EXPECT_THAT(WithTokenizer(Processor({"A:0"}, {"A:0", "B:2"})), refused(2, type));
  EXPECT_THAT(WithTokenizer(Processor({"A:0", "[CLS]:7"}, {"A:0", "B:1"})), refused(7, type));
  EXPECT_EQ(WithTokenizer(Processor({"A:0"}, {"[CLS]:1", "B:1", "A:0"})), "");
}

TEST(HostileDirectoryTest, APostProcessorMustKeepTheTextOnce) {
  for (const auto& single : std::vector<std::vector<std::string>>{
           {"[CLS]:0"}, {"A:0", "A:0"}, {"A:0", "[CLS]:0", "A:1"}, {"B:0"}, {}}) {
    EXPECT_THAT(WithTokenizer(Processor(single, {"A:0", "B:1"})), HasSubstr("tokenizer.json: "));
  }
  for (const auto& pair :
       std::vector<std::vector<std::string>>{{"A:0"}, {"A:0", "A:0"}, {"B:0", "A:0", "B:1"}}) {
    EXPECT_THAT(WithTokenizer(Processor({"A:0"}, pair)),
                AllOf(HasSubstr("tokenizer.json: "), HasSubstr("post-processor")));
  }
  // A special token that the template does not define.
  EXPECT_THAT(WithTokenizer([](json& tokenizer) {
                Processor({"[CLS]:0", "A:0"}, {"A:0", "B:0"})(tokenizer);
                tokenizer["post_processor"]["special_tokens"] = json::object();
              }),
              HasSubstr("tokenizer.json: "));
}

TEST(HostileDirectoryTest, TheUnknownTokenMustBeInTheVocabulary) {
  EXPECT_THAT(WithTokenizer([](json& tokenizer) { tokenizer["model"]["unk_token"] = "[NONE]"; }),
              AllOf(HasSubstr("tokenizer.json: "), HasSubstr("unknown token \"[NONE]\"")));
  EXPECT_THAT(WithTokenizer([](json& tokenizer) { tokenizer["model"]["vocab"].erase("[UNK]"); }),
              HasSubstr("unknown token \"[UNK]\""));
  const json words = {{"[UNK]", 0}, {"a", 1}};
  const auto model = [](const json& model) {
    return WithTokenizer([&](json& tokenizer) { tokenizer["model"] = model; });
  };
  EXPECT_THAT(model({{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "<unk>"}}),
              HasSubstr("unknown token \"<unk>\""));
  EXPECT_EQ(model({{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "[UNK]"}}), "");
  EXPECT_THAT(
      model({{"type", "BPE"}, {"vocab", words}, {"merges", json::array()}, {"unk_token", "<unk>"}}),
      HasSubstr("<unk>"));
  // Without an unknown token it drops what it does not know, as Hugging Face does.
  EXPECT_EQ(
      WithTokenizer([](json& tokenizer) {
        tokenizer["pre_tokenizer"] = {
            {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
        tokenizer["model"] = {{"type", "BPE"}, {"vocab", {{"A", 0}}}, {"merges", json::array()}};
      }),
      "");
  const json pieces = json::parse(R"([["[UNK]", 0.0], ["a", -1.0]])");
  EXPECT_THAT(model({{"type", "Unigram"}, {"unk_id", nullptr}, {"vocab", pieces}}),
              HasSubstr("tokenizer.json: "));
  EXPECT_THAT(model({{"type", "Unigram"}, {"unk_id", 2}, {"vocab", pieces}}),
              HasSubstr("tokenizer.json: "));
  EXPECT_EQ(model({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}), "");
}

TEST(HostileDirectoryTest, AddedTokensMustBeFoundSomewhereAndNotEverywhere) {
  const auto with = [](const std::string& content, bool normalized) {
    return WithTokenizer([&](json& tokenizer) {
      json added = tokenizer["added_tokens"][0];
      added.update({{"content", content}, {"normalized", normalized}, {"special", false}});
      json& vocabulary = tokenizer["model"]["vocab"];
      for (const auto& [word, id] : vocabulary.items()) {
        if (id == 24) {
          vocabulary.erase(word);
          break;
        }
      }
      vocabulary[content] = 24;
      added["id"] = 24;
      tokenizer["added_tokens"].push_back(added);
    });
  };
  const std::string removed = "\xe2\x80\x8b";  // a zero-width space, which BERT drops
  EXPECT_THAT(with(removed, true), HasSubstr("makes the added token 24 empty"));
  EXPECT_EQ(with(removed, false), "");
  EXPECT_EQ(with("two words", true), "");
  EXPECT_EQ(with("", true), "");  // ignored, as Hugging Face does
}

TEST(HostileDirectoryTest, SpecialTokensMustLeaveRoomInTextsAndInPairs) {
  std::vector<std::string> many(32, "[CLS]:0");
  many.push_back("A:0");
  EXPECT_THAT(WithTokenizer(Processor(many, {"A:0", "B:1"})), HasSubstr("no room for text"));
  many.push_back("B:0");
  EXPECT_THAT(WithTokenizer(Processor({"A:0"}, many)), HasSubstr("no room for text"));
}

// ---- JSON and numbers.

TEST(HostileDirectoryTest, NumbersBeyondReasonAreRefused) {
  struct Case {
    const char* key;
    json value;
  };
  for (const Case& bad :
       std::vector<Case>{{"hidden_size", int64_t{1} << 62},
                         {"hidden_size", -1},
                         {"hidden_size", 1e300},
                         {"num_hidden_layers", 1000000000},
                         {"num_attention_heads", int64_t{1} << 40},
                         {"intermediate_size", std::numeric_limits<int64_t>::max()},
                         {"vocab_size", 0},
                         {"vocab_size", 26},
                         {"max_position_embeddings", 0},
                         {"max_position_embeddings", 33},
                         {"type_vocab_size", 3},
                         {"num_hidden_layers", 3}}) {
    TinyModel files;
    files.EditJson("config.json", [&](json& config) { config[bad.key] = bad.value; });
    EXPECT_THAT(ErrorOf(files), HasSubstr(files.directory())) << bad.key << bad.value;
  }
}

TEST(HostileDirectoryTest, DeepNestingIsRefused) {
  constexpr int kDepth = kSanitized ? 20'000 : 1'000'000;
  const std::string lists = std::string(kDepth, '[') + std::string(kDepth, ']');
  std::string objects;
  for (int i = 0; i < kDepth; ++i) objects += "{\"a\":";
  for (const std::string& name : kFiles) {
    if (name == "model.safetensors") continue;
    for (const std::string& text : {lists, objects, "{\"x\":" + lists + "}"}) {
      const TinyModel files;
      WriteFile(MakeRoom(files, name), text);
      EXPECT_THAT(ErrorOf(files), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace castor::encoder
