// Model directories with one thing wrong at a time, and the error that must name it.
#include "engine/encoder/directory/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "engine/encoder/layers/linear.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using Weights = std::map<std::string, RawTensor>;

TEST(LoadTest, ReadsADirectory) {
  const TinyModel files;
  const auto model = files.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.name, "test");
  EXPECT_EQ(info.family, "bert");
  EXPECT_EQ(info.dtype, DType::kFloat32);
  EXPECT_EQ(info.hidden_size, 24);
  EXPECT_EQ(info.layers, 2);
  EXPECT_EQ(info.heads, 3);
  EXPECT_EQ(info.max_tokens, 32);
  EXPECT_EQ(info.vocabulary_size, 25);
  EXPECT_EQ(info.type_vocabulary_size, 2);
  EXPECT_EQ(info.pooling, Pooling::kCls);
  EXPECT_FALSE(info.normalize);
  const int64_t layer = 4 * (24 * 24 + 24) + 2 * 24 * 40 + 40 + 24 + 4 * 24;
  EXPECT_EQ(info.parameters, (25 + 32 + 2 + 2) * 24 + 2 * layer);
  EXPECT_EQ(info.weight_bytes, 4 * info.parameters);

  const auto half = files.Load(DType::kBFloat16);
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_EQ((*half)->info().weight_bytes, 2 * info.parameters);
  EXPECT_FALSE(files.Load(DType::kInt64).ok());
}

TEST(LoadTest, SaysWhatInt8Costs) {
  if (!Linear::HasInt8(at::Device(at::kCPU))) GTEST_SKIP() << "this processor has no kernel for it";
  const TinyModel files;
  const auto load = [&](DType dtype, bool int8) {
    const ModelSource source{
        .name = "test", .directory = files.directory(), .dtype = dtype, .int8 = int8};
    return LoadModel(source, at::Device(at::kCPU), RunOnCpu);
  };
  const auto exact = load(DType::kFloat32, false), model = load(DType::kFloat32, true);
  ASSERT_TRUE(exact.ok() && model.ok()) << model.status();
  EXPECT_FALSE((*exact)->info().int8.has_value());
  const ModelInfo& info = (*model)->info();
  ASSERT_TRUE(info.int8.has_value());
  EXPECT_GT(info.int8->least_cosine, 0.98);
  EXPECT_LT(info.int8->least_cosine, 1) << "the two models computed the same";
  EXPECT_GE(info.int8->mean_cosine, info.int8->least_cosine);
  EXPECT_EQ(info.parameters, (*exact)->info().parameters);
  const int64_t linear = 2 * (4 * 24 * 24 + 2 * 24 * 40);
  EXPECT_EQ(info.weight_bytes, 4 * info.parameters - 3 * linear);
  EXPECT_FALSE(load(DType::kBFloat16, true).ok());
}

TEST(LoadTest, TakesWhatHuggingFaceTakes) {
  // A task model's prefix, and the names of the original checkpoints.
  TinyModel files;
  files.EditWeights([](Weights& weights) {
    Weights renamed;
    for (auto& [name, tensor] : weights) {
      std::string now = "bert." + name;
      for (const auto& [from, to] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"},
                                     std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
        const size_t at = now.find(from);
        if (at != std::string::npos) now.replace(at, std::string::npos, to);
      }
      renamed[now] = tensor;
    }
    renamed["classifier.weight"] = {"F32", {1}, "abcd"};
    weights = renamed;
  });
  EXPECT_EQ(ErrorOf(files), "");

  // Keys at their defaults may be missing or null.
  files.EditJson("config.json", [](json& config) {
    for (const char* key : {"hidden_act", "type_vocab_size", "is_decoder",
                            "position_embedding_type", "add_cross_attention"}) {
      config.erase(key);
    }
    config["pad_token_id"] = nullptr;
    config["something_new"] = {1, 2, 3};
  });
  EXPECT_EQ(ErrorOf(files), "");
}

TEST(LoadTest, NamesTheMissingFile) {
  for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const TinyModel files;
    std::filesystem::remove(files / name);
    const auto loaded = files.Load();
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(name));
  }
  const auto nowhere = LoadOnCpu("/nowhere/at/all");
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("/nowhere/at/all"));
}

TEST(LoadTest, NamesTheKeyOfTheConfig) {
  ExpectKeysRefused("tiny_bert", {{"model_type", "gpt2", "\"gpt2\" is not known; known are bert, "},
                                  {"model_type", nullptr, "is missing"},
                                  {"model_type", 1, "must be a string"},
                                  {"hidden_act", "swiglu", "unknown activation \"swiglu\""},
                                  {"position_embedding_type", "relative_key", "\"absolute\" is"},
                                  {"is_decoder", true, "only encoders"},
                                  {"add_cross_attention", true, "only encoders"},
                                  {"is_decoder", "no", "only encoders"},
                                  {"hidden_size", 0, "must be an integer"},
                                  {"hidden_size", -24, "must be an integer"},
                                  {"hidden_size", 24.0, "must be an integer"},
                                  {"hidden_size", uint64_t{1} << 63, "must be an integer"},
                                  {"num_hidden_layers", 1000000, "must be an integer"},
                                  {"num_attention_heads", 5, "does not divide"},
                                  {"layer_norm_eps", "small", "must be a number"},
                                  {"layer_norm_eps", -1.0, "within 1.2e-38..1"},
                                  {"layer_norm_eps", 1e-300, "within 1.2e-38..1"}});
}

TEST(LoadTest, NamesTheTensorThatIsMissing) {
  ExpectTensorsNeeded(
      "tiny_bert",
      {"embeddings.word_embeddings.weight", "embeddings.LayerNorm.bias",
       "encoder.layer.1.attention.self.key.bias", "encoder.layer.0.output.dense.weight"});
}

TEST(LoadTest, NamesTheTensorOfTheWrongShapeOrType) {
  TinyModel shape;
  shape.EditJson("config.json", [](json& config) { config["intermediate_size"] = 41; });
  EXPECT_THAT(ErrorOf(shape),
              AllOf(HasSubstr("model.safetensors: encoder.layer.0.intermediate.dense.weight"),
                    HasSubstr("[40, 24]"), HasSubstr("[41, 24]")));
  TinyModel type;
  type.EditWeights(
      [](Weights& weights) { weights["encoder.layer.0.output.dense.bias"].dtype = "I32"; });
  EXPECT_THAT(ErrorOf(type), AllOf(HasSubstr("encoder.layer.0.output.dense.bias"),
                                   HasSubstr("I32 is not supported")));
}

TEST(LoadTest, RefusesModulesThatHaveNoPlace) {
  const auto with = [](const std::function<void(json&)>& edit) {
    TinyModel files;
    files.EditJson("modules.json", edit);
    return ErrorOf(files);
  };
  const auto module = [](const std::string& type, const std::string& path) {
    return json{{"name", "last"}, {"type", "sentence_transformers.models." + type}, {"path", path}};
  };
  EXPECT_THAT(with([&](json& list) { list.push_back(module("Dense", "2_Dense")); }),
              HasSubstr("2_Dense/config.json"));
  EXPECT_THAT(with([&](json& list) { list.push_back(module("Pooling", "1_Pooling")); }),
              HasSubstr("\"Pooling\""));
  EXPECT_THAT(with([&](json& list) { list.erase(0); }), HasSubstr("not a Transformer"));
  EXPECT_THAT(
      with([&](json& list) { list = json::array({module("Router", "")}); }),
      HasSubstr("modules.json: a Router is supported as the only module of a SparseEncoder"));
}

TEST(LoadTest, RefusesPromptsAndLengthsThatLeaveNoRoom) {
  const auto with = [](const std::string& name, const std::string& text) {
    const TinyModel files;
    WriteFile(files / name, text);
    return ErrorOf(files);
  };
  EXPECT_THAT(with("sentence_bert_config.json", R"({"max_seq_length": 3})"),
              HasSubstr("no room for text"));
  const auto prompts = [&](const std::string& text) {
    return with("config_sentence_transformers.json", text);
  };
  EXPECT_THAT(prompts(R"({"prompts": {"query": 7}})"),
              HasSubstr("prompts.query: must be a string"));
  EXPECT_THAT(prompts(R"({"prompts": {"": "the"}})"), HasSubstr("empty name"));
  EXPECT_THAT(
      prompts(R"({"prompts": {"q": "the [SEP] a"}})"),
      AllOf(HasSubstr("config_sentence_transformers.json"), HasSubstr("prompts.q: holds a")));
  std::string long_prompt;
  for (int i = 0; i < 31; ++i) long_prompt += "the ";
  EXPECT_THAT(prompts(R"({"prompts": {"q": ")" + long_prompt + R"("}})"),
              HasSubstr("prompts.q: leaves no room"));
  EXPECT_THAT(with("1_Pooling/config.json",
                   R"({"pooling_mode_weightedmean_tokens": true, "include_prompt": false})"),
              HasSubstr("include_prompt"));
}

// ---- tables without a transformer

TEST(LoadTest, ATableTakesTextsOfAnyLengthWithoutSpecialTokens) {
  TinyModel files("heads/static");
  const std::string text = "the river runs past the mill";
  std::string many;
  for (int i = 0; i < 1000; ++i) many += text + " ";
  const auto ids = [&](const TinyModel& directory, std::string_view of) {
    const auto model = directory.Load();
    EXPECT_TRUE(model.ok()) << model.status();
    EncodeRequest request;
    request.input = TextInput{.texts = {of}, .pairs = {}};
    const auto prepared = Prepare(request, **model);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? prepared->ids : std::vector<int64_t>();
  };
  const std::vector<int64_t> once = ids(files, text);
  ASSERT_GE(once.size(), 6U);
  EXPECT_EQ(ids(files, many).size(), 1000 * once.size());
  // tokenizer.json is read alone.
  WriteFile(files / "tokenizer_config.json", R"({"model_max_length": 3})");
  EXPECT_EQ(ids(files, text), once);
  files.EditJson("tokenizer.json", [](json& tokenizer) {
    tokenizer["truncation"] = {
        {"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  });
  EXPECT_EQ(ids(files, many), std::vector(once.begin(), once.begin() + 4));
}

TEST(LoadTest, ATextWithoutTokensHasNoMean) {
  const auto model = TinyModel("heads/static").Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EncodeRequest request;
  request.input = TextInput{.texts = {"the mill", ""}, .pairs = {}};
  EXPECT_THAT(std::string(Prepare(request, **model).status().message()),
              HasSubstr("texts.texts[1]: has no tokens"));
}

TEST(LoadTest, NamesWhatATableLacks) {
  const auto with = [](const std::function<void(Weights&)>& edit) {
    TinyModel files("heads/static_model2vec");
    files.EditWeights(edit);
    return ErrorOf(files);
  };
  EXPECT_EQ(with([](Weights&) {}), "");
  EXPECT_THAT(with([](Weights& weights) { weights.erase("embeddings"); }),
              HasSubstr("neither \"embedding.weight\" nor \"embeddings\""));
  EXPECT_THAT(with([](Weights& weights) { weights.erase("mapping"); }),
              HasSubstr("weights: holds "));
  EXPECT_THAT(with([](Weights& weights) {
                weights.erase("mapping");
                weights.erase("weights");
              }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("the number of its rows is 40")));
  EXPECT_THAT(with([](Weights& weights) { weights["mapping"].data[0] = 40; }),
              HasSubstr("mapping: names rows that \"embeddings\" lacks"));
  EXPECT_THAT(with([](Weights& weights) { weights["mapping"].data[7] = '\xff'; }),
              HasSubstr("mapping: names rows that \"embeddings\" lacks"));
  EXPECT_THAT(with([](Weights& weights) { weights["mapping"].dtype = "F64"; }),
              HasSubstr("mapping: holds no integers"));
  EXPECT_THAT(with([](Weights& weights) {
                weights["weights"].data.replace(0, 8, "\0\0\0\0\0\0\xf0\x7f", 8);
              }),
              HasSubstr("weights: makes rows that are not finite"));
  EXPECT_THAT(with([](Weights& weights) { weights["embeddings"].dtype = "I32"; }),
              HasSubstr("embeddings: dtype I32 is not supported"));
}

// model2vec leaves out unknown tokens; sentence-transformers does not.
TEST(LoadTest, AModel2VecDirectoryNeedsModules) {
  const TinyModel files("heads/static_model2vec");
  std::filesystem::remove(files / "modules.json");
  WriteFile(files / "config.json", R"({"model_type": "model2vec", "normalize": true})");
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("config.json: model_type: \"model2vec\" without"),
                                    HasSubstr("from_model2vec(\"" + files.directory())));
}

}  // namespace
}  // namespace castor::encoder
