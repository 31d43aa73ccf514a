// The heads of directories, and the requests that models with heads accept.
// directory_variations_test.cc varies the heads' keys one at a time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/directory/load.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/text/output_types.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<Model> LoadGolden(const std::string& name) {
  auto model = LoadOnCpu(GoldenDirectory() + "/" + name, DType::kFloat32);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

TEST(LoadHeadTest, SaysWhatModelsGive) {
  using enum EncodeOutput;
  EXPECT_THAT(LoadGolden("heads/bert_sequences")->info().outputs,
              ElementsAre(kScores, kLogits, kPooled, kTokenEmbeddings));
  EXPECT_THAT(LoadGolden("heads/splade_bert")->info().outputs,
              ElementsAre(kSparse, kPooled, kTokenEmbeddings));
  EXPECT_THAT(LoadGolden("tiny_bert")->info().outputs, ElementsAre(kPooled, kTokenEmbeddings));
  // The body of a masked language model.
  EXPECT_THAT(LoadGolden("families/mpnet_long")->info().outputs,
              ElementsAre(kPooled, kTokenEmbeddings));
  const ModelInfo colbert = LoadGolden("heads/colbert_stanford")->info();
  EXPECT_THAT(colbert.outputs, ElementsAre(kTokenEmbeddings));
  EXPECT_TRUE(colbert.normalize);
  EXPECT_EQ(WidthOf(colbert, kTokenEmbeddings), 6);
  const ModelInfo dense = LoadGolden("heads/dense")->info();
  EXPECT_EQ(dense.hidden_size, 16);
  EXPECT_EQ(WidthOf(dense, kPooled), 8);
  EXPECT_EQ(WidthOf(dense, kTokenEmbeddings), 16);
  EXPECT_TRUE(dense.normalize);
}

TEST(LoadHeadTest, CountsTheHeadsWeights) {
  const ModelInfo with = LoadGolden("heads/dense")->info();
  TinyModel files("heads/dense");
  files.EditJson("modules.json",
                 [](json& modules) { modules.erase(2), modules.erase(2), modules.erase(2); });
  const auto without = files.Load();
  ASSERT_TRUE(without.ok()) << without.status();
  const int64_t dense = 16 * 20 + 20 + 20 * 12 + 12 * 8 + 8;
  EXPECT_EQ(with.parameters - (*without)->info().parameters, dense);
  EXPECT_EQ(with.weight_bytes - (*without)->info().weight_bytes, 4 * dense);
}

TEST(LoadHeadTest, AModulesFileMakesAnEmbeddingModelOfAnyClass) {
  TinyModel files("heads/bert_sequences");
  WriteFile(files / "modules.json",
            R"([{"name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  std::filesystem::create_directory(files / "1_Pooling");
  WriteFile(files / "1_Pooling/config.json",
            R"({"embedding_dimension": 16, "pooling_mode": "mean"})");
  const auto model = files.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().outputs,
              ElementsAre(EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings));
}

TEST(LoadHeadTest, RefusesHeadsWithoutTheirWeights) {
  ExpectTensorsNeeded("heads/bert_sequences", {"bert.pooler.dense.weight"});
  ExpectTensorsNeeded("heads/bert_tokens", {"classifier.bias"});
  ExpectTensorsNeeded("heads/splade_roberta", {"lm_head.decoder.weight"});
  ExpectTensorsNeeded("heads/splade_distilbert", {"vocab_projector.bias"});
  ExpectTensorsNeeded("heads/colbert_stanford", {"linear.weight"});
}

TEST(LoadHeadTest, RefusesPickledWeightsOfAModule) {
  const TinyModel files("heads/dense");
  std::filesystem::rename(files / "3_Dense/model.safetensors", files / "3_Dense/pytorch_model.bin");
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("3_Dense"), HasSubstr("python3 -c")));
}

TEST(LoadHeadTest, Int8IsComparedByWhatTheModelGives) {
  if (!Linear::HasInt8(at::Device(at::kCPU))) GTEST_SKIP() << "this processor has no kernel for it";
  for (const char* name : {"heads/bert_sequences", "heads/splade_bert", "heads/colbert_pylate",
                           "heads/dense", "families/nomic_bert_stretched", "families/new_mixed",
                           "families/jina_bert_code", "families/eurobert_biases", "families/qwen3",
                           "families/electra", "families/deberta", "cast/one_cluster_tokens"}) {
    const ModelSource source{.name = "test",
                             .directory = GoldenDirectory() + "/" + name,
                             .dtype = DType::kFloat32,
                             .int8 = true};
    const auto model = LoadModel(source, at::Device(at::kCPU), RunOnCpu);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    ASSERT_TRUE((*model)->info().int8.has_value());
    EXPECT_GT((*model)->info().int8->least_cosine, 0.9) << name;
    EXPECT_LT((*model)->info().int8->least_cosine, 1) << name;
  }
}

TEST(CheckOutputTest, RefusesWhatTheModelHasNot) {
  const auto refusal = [](const std::string& name, const std::function<void(EncodeRequest&)>& ask) {
    EncodeRequest request;
    TextInput texts;
    texts.texts = {"a"};
    request.input = texts;
    ask(request);
    const absl::Status status = LoadGolden(name)->CheckInput(request, 10, 100);
    return std::string(status.message());
  };
  using R = EncodeRequest;
  EXPECT_EQ(refusal("heads/bert_sequences", [](R&) {}), "");
  EXPECT_THAT(refusal("tiny_bert", [](R& r) { r.output = EncodeOutput::kScores; }),
              HasSubstr("has no SCORES; it has POOLED, TOKEN_EMBEDDINGS"));
  EXPECT_THAT(refusal("heads/colbert_pylate", [](R& r) { r.output = EncodeOutput::kPooled; }),
              HasSubstr("has no POOLED"));
  for (const char* name : {"heads/bert_sequences", "heads/splade_bert"}) {
    EXPECT_THAT(refusal(name, [](R& r) { r.dimensions = 1; }), HasSubstr("has no meaning"));
    EXPECT_THAT(refusal(name, [](R& r) { r.pooling = Pooling::kCls; }),
                HasSubstr("has no meaning"));
    EXPECT_THAT(refusal(name, [](R& r) { r.normalize = true; }), HasSubstr("has no meaning"));
  }
  EXPECT_THAT(refusal("tiny_bert",
                      [](R& r) {
                        r.pooling = Pooling::kCls;
                        r.output = EncodeOutput::kTokenEmbeddings;
                      }),
              HasSubstr("has no meaning for TOKEN_EMBEDDINGS"));
  EXPECT_THAT(refusal("heads/dense", [](R& r) { r.dimensions = 9; }), HasSubstr("0..8"));
  EXPECT_EQ(refusal("heads/dense",
                    [](R& r) {
                      r.dimensions = 9;
                      r.output = EncodeOutput::kTokenEmbeddings;
                    }),
            "");
  EXPECT_THAT(refusal("heads/colbert_pylate", [](R& r) { r.dimensions = 7; }), HasSubstr("0..6"));
}

// BGE-M3's layers, in files next to the transformer (tests/golden/encoder/make_bge_m3.py).

const std::string kFolder = "heads/bge_m3";

std::string FileOfM3(const std::string& name) {
  return ReadFile(GoldenDirectory() + "/" + kFolder + "/" + name);
}

TEST(BgeM3Test, SaysWhatItGives) {
  const auto model = LoadOnCpu(GoldenDirectory() + "/" + kFolder, DType::kFloat32);
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  using enum EncodeOutput;
  EXPECT_THAT(info.outputs, ElementsAre(kPooled, kSparse, kTokenEmbeddings));
  EXPECT_EQ(info.pooling, Pooling::kCls);
  EXPECT_TRUE(info.normalize);
  EXPECT_EQ(WidthOf(info, kTokenEmbeddings), 6);
  // SPARSE needs ids.
  EncodeRequest request;
  request.output = kSparse;
  request.input = EmbeddingInput{.values = {.shape = {1, 8}, .pieces = {}}, .lengths = {}};
  EXPECT_FALSE((*model)->CheckInput(request, 8, 100).ok());
}

// FlagEmbedding saves the layers as pickles. A model without them would be another model.
TEST(BgeM3Test, PicklesAreRefusedWithTheCommandThatConvertsThem) {
  for (const char* layer : {"sparse_linear", "colbert_linear"}) {
    const TinyModel files(kFolder);
    std::filesystem::rename(files / (std::string(layer) + ".safetensors"),
                            files / (std::string(layer) + ".pt"));
    EXPECT_THAT(ErrorOf(files), HasSubstr(std::string(layer) + ".pt: .pt files are not read"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("torch.load(f + '.pt', 'cpu', weights_only=True)"));
  }
}

TEST(BgeM3Test, LayersAreNeverIgnored) {
  {
    const TinyModel files(kFolder);
    std::filesystem::remove(files / "colbert_linear.safetensors");
    EXPECT_THAT(ErrorOf(files), HasSubstr("colbert_linear.safetensors: missing"));
  }
  {
    const TinyModel files(kFolder);
    WriteFile(files / "sparse_linear.safetensors", FileOfM3("colbert_linear.safetensors"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.safetensors: weight: shape is [6, 8]"));
  }
  {
    const TinyModel files(kFolder);
    WriteFile(files / "sparse_linear.safetensors", "");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.safetensors"));
  }
  {
    const TinyModel files("heads/splade_bert");
    WriteFile(files / "sparse_linear.pt", "a pickle");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear"));
  }
}

// A prompt's marker follows the special tokens, if there are any.
TEST(LoadHeadTest, TokenizesAPromptsMarker) {
  const std::shared_ptr<Model> model = LoadGolden("directories/bert-stanford");
  EncodeRequest request;
  request.input = TextInput{{"the mill"}, {}};
  request.prompt_name = "query";
  std::vector<int64_t> ids[2];
  for (const bool special : {false, true}) {
    request.instead = TokenizeOnly{.add_special_tokens = special};
    Tokenized tokenized;
    EXPECT_TRUE(model->TokenizeSome(request, {}, &tokenized).ok());
    ids[special ? 1 : 0] = tokenized.ids;
  }
  ASSERT_EQ(ids[1].size(), ids[0].size() + 2);
  EXPECT_TRUE(std::equal(ids[0].begin(), ids[0].end(), ids[1].begin() + 1));
  request.max_tokens = 3;  // two special tokens, and the marker
  Tokenized none;
  EXPECT_EQ(FieldOf(model->TokenizeSome(request, {}, &none).status()), "max_tokens");
}

// A query that is padded, of a document whose punctuation has no rows.
TEST(LoadHeadTest, MaxSimComparesTheRowsThatEncodeGives) {
  const std::shared_ptr<Model> model = LoadGolden("directories/bert-stanford");
  const int64_t width = model->info().token_size;
  const auto rows = [&](std::vector<std::string_view> texts, const char* prompt,
                        EncodeOutput output) {
    EncodeRequest request;
    request.input = TextInput{std::move(texts), {}};
    request.output = output;
    if (prompt != nullptr) request.prompt_name = prompt;
    const absl::StatusOr<Prepared> prepared = Prepare(request, *model);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    const auto all = RowsOf(model, request, *prepared);
    EXPECT_TRUE(all.ok()) << all.status();
    return *all;
  };
  const std::vector<std::string_view> texts = {"the mill", "a, b! the mill", "nobody."};
  const auto query = rows({texts[0]}, "query", EncodeOutput::kTokenEmbeddings);
  EXPECT_EQ(std::ssize(query), 16 * width);
  const std::vector<float> scores = rows(texts, nullptr, EncodeOutput::kMaxSim);
  ASSERT_EQ(scores.size(), 2U);
  for (size_t d = 0; d < 2; ++d) {
    const auto document = rows({texts[d + 1]}, "document", EncodeOutput::kTokenEmbeddings);
    double sum = 0;
    for (int64_t q = 0; q < std::ssize(query); q += width) {
      double most = -INFINITY;
      for (int64_t t = 0; t < std::ssize(document); t += width) {
        most = std::max(most, std::inner_product(query.begin() + q, query.begin() + q + width,
                                                 document.begin() + t, 0.0));
      }
      sum += most;
    }
    EXPECT_NEAR(scores[d], sum, 2e-5);
  }
}

}  // namespace
}  // namespace castor::encoder
