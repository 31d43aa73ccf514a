// Encoders with CAST layers: what their config may not say, what their checkpoints must hold, which
// attention they run, and that a batch changes nothing. What they compute is compared with the
// paper's definition in parity_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/encoder/directory/cast_file.h"
#include "engine/encoder/network/network.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModels[] = {"top_k",          "top_k_laplace",      "single",
                                   "single_laplace", "one_cluster_tokens", "long"};

std::shared_ptr<Model> Loaded(const std::string& name, DType dtype = DType::kFloat32) {
  const auto model = TinyModel("cast/" + name).Load(dtype);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

TEST(CastorCastTest, NamesTheKeyOfTheConfig) {
  ExpectKeysRefused(
      "cast/single",
      {{"cast_clustering", "k_means", "\"top_k\" and \"single_assignment_top_k\" are"},
       {"cast_attention_function", "relu", "\"softmax\" and \"laplace\" are"},
       {"cast_gate_temperature", "softplus", "\"softplus1\" and \"none\" are"},
       {"cast_head_clustering", "all", "\"shared\" and \"per_head\" are"},
       {"position_embedding_type", "rope", "\"learned\" and \"sinusoidal\" are"},
       {"cast_clusters", 0, "must be an integer"},
       {"cast_clusters", nullptr, "is missing"},
       {"cast_cluster_size", 0, "must be an integer"},
       {"cast_cluster_size", 9, "needs a place for every token"},
       {"num_attention_heads", 5, "does not divide"},
       {"hidden_size", nullptr, "is missing"},
       {"hidden_act", "swiglu", "unknown activation"},
       {"layer_norm_eps", -1.0, "within 1.2e-38..1"},
       {"classifier_pooling", nullptr, "is missing"},
       {"classifier_pooling", "max", "\"cls\", \"mean\" are"},
       {"sliding_window", 8, "is not known"},
       {"rope_theta", 1e4, "is not known"}});
  TinyModel fewer("cast/single");
  fewer.EditJson("config.json", [](json& config) { config["cast_clusters"] = 3; });
  EXPECT_THAT(ErrorOf(fewer), HasSubstr("surrogate_tokens: shape"));
  // As many places as tokens are enough.
  TinyModel enough("cast/single");
  enough.EditJson("config.json", [](json& config) { config["cast_cluster_size"] = 10; });
  EXPECT_EQ(ErrorOf(enough), "");
  TinyModel long_sinusoids("cast/long");
  long_sinusoids.EditJson("config.json",
                          [](json& config) { config["max_position_embeddings"] = 1 << 20; });
  EXPECT_THAT(ErrorOf(long_sinusoids), HasSubstr("max_position_embeddings"));
}

TEST(CastorCastTest, NamesTheTensorThatIsMissing) {
  ExpectTensorsNeeded(
      "cast/top_k",
      {"embeddings.positions.weight", "layers.1.surrogate_tokens", "layers.0.gate.weight",
       "layers.0.gate.bias", "layers.1.attention.key.bias", "layers.0.attention_norm.bias",
       "layers.1.mlp.in.weight", "final_norm.weight", "classifier.bias"});
}

TEST(CastorCastTest, SaysWhatItIs) {
  const std::shared_ptr<Model> model = Loaded("single_laplace");
  ASSERT_NE(model, nullptr);
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.family, "castor_cast");
  EXPECT_THAT(info.kernels, ElementsAre(KernelName::kCast));
  ASSERT_TRUE(std::holds_alternative<Cast>(info.kernel));
  const Cast& cast = std::get<Cast>(info.kernel);
  EXPECT_EQ(cast.clustering, Cast::Clustering::kSingleAssignmentTopK);
  EXPECT_EQ(cast.attention_function, Cast::AttentionFunction::kLaplace);
  EXPECT_EQ(cast.head_clustering, Cast::HeadClustering::kPerHead);
  EXPECT_EQ(cast.cluster_size, 9);
  EXPECT_THAT(info.labels, ElementsAre("calm", "fair", "stormy"));
  EXPECT_EQ(info.max_tokens, 40);
}

// Whatever kernel is asked for: warm-up, and int8's comparison, ask for none.
TEST(CastorCastTest, AlwaysRunsCast) {
  const std::shared_ptr<Model> model = Loaded("top_k");
  ASSERT_NE(model, nullptr);
  for (const Kernel& kernel : {Kernel(Vanilla{}), Kernel(Clustered{}), model->info().kernel}) {
    const auto layers = model->attention(kernel);
    ASSERT_EQ(layers.size(), 1U);
    EXPECT_EQ(layers[0].layers, 2);
    EXPECT_TRUE(std::holds_alternative<Cast>(layers[0].spec.kernel));
    EXPECT_EQ(layers[0].spec.surrogates, 4);
  }
}

struct Sequences {
  std::vector<int64_t> ids = {};
  std::vector<int32_t> cu_seqlens = {0};
  std::vector<float> rows = {};

  void Add(int length) {
    for (int i = 0; i < length; ++i) ids.push_back((31 * i + 7 * length) % 96);
    cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
  }
};

void ComputeRows(const std::shared_ptr<Model>& model, const std::vector<Sequences*>& all) {
  Batch batch{.model = model, .kernel = model->info().kernel, .items = {}};
  for (Sequences* each : all) {
    BatchItem item{.cu_seqlens = each->cu_seqlens, .ids = each->ids};
    item.output_kind = EncodeOutput::kTokenEmbeddings;
    item.dimensions = model->info().hidden_size;
    each->rows.assign(static_cast<size_t>(item.output_rows() * item.dimensions), NAN);
    item.output = each->rows.data();
    batch.items.push_back(item);
  }
  const absl::Status status = RunOnHost(batch, RunToEnd());
  EXPECT_TRUE(status.ok()) << status;
}

// Lengths from one token on: fewer than clusters, than a cluster's size, and up to the model's.
TEST(CastorCastTest, RowsDoNotDependOnTheBatch) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const char* name : kModels) {
      const std::shared_ptr<Model> model = Loaded(name, dtype);
      ASSERT_NE(model, nullptr);
      const auto longest = static_cast<int>(model->info().max_tokens);
      std::vector<Sequences> alone(7);
      Sequences together;
      for (const int length : {1, 2, 3, 7, 17, longest - 1, longest}) {
        together.Add(length);
        Sequences& one = alone[together.cu_seqlens.size() - 2];
        one.Add(length);
        ComputeRows(model, {&one});
      }
      Sequences neighbour;
      neighbour.Add(longest / 2);
      ComputeRows(model, {&neighbour, &together});
      std::vector<float> rows;
      for (const Sequences& one : alone) rows.insert(rows.end(), one.rows.begin(), one.rows.end());
      EXPECT_EQ(together.rows, rows) << name;
      for (const float x : rows) ASSERT_TRUE(std::isfinite(x)) << name;
    }
  }
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// With one cluster no token can be in another, so rows are near. With several some are not.
TEST(CastorCastTest, IsNearInBfloat16) {
  for (const char* name : kModels) {
    Sequences exact, near;
    for (Sequences* each : {&exact, &near}) {
      each->Add(30);
      each->Add(11);
      ComputeRows(Loaded(name, each == &exact ? DType::kFloat32 : DType::kBFloat16), {each});
    }
    const bool one = std::string(name) == "one_cluster_tokens";
    EXPECT_GT(Cosine(exact.rows, near.rows), one ? 0.999 : 0.9) << name;
  }
}

// Its weights are also a file of CAST layers, for requests that bring queries, keys and values.
TEST(CastorCastTest, ItsWeightsAreAFileOfLayers) {
  const auto file = ReadCastFile(
      {.name = "layers", .directory = GoldenDirectory() + "/cast/single/model.safetensors"});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->layers.size(), 2U);
  EXPECT_EQ(file->layers[1]->surrogate_tokens(), 4);
  EXPECT_EQ(file->layers[1]->heads(), 3);
}

// Files of CAST layers: those that load, and those that are refused with the file and the tensor
// named.

std::string Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

absl::StatusOr<CastFile> Read(const std::map<std::string, RawTensor>& tensors) {
  const TemporaryFolder folder;
  WriteFile(folder / "x.safetensors", SafetensorsBytes(tensors));
  return ReadCastFile({.name = "long", .directory = folder / "x.safetensors"});
}

template <typename T>
T At(const std::byte* data, int64_t index) {
  T element;
  std::memcpy(&element, data + index * sizeof(T), sizeof(T));
  return element;
}

TEST(CastFileTest, IsToldFromADirectoryByItsEnding) {
  EXPECT_TRUE(IsCastFile("/models/long.safetensors"));
  EXPECT_FALSE(IsCastFile("/models/minilm"));
}

TEST(CastFileTest, LayersComeInEveryDType) {
  const std::vector<float> first = {1, -2, 0.5, 3, 0.25, -8};
  // 1.5 and -2 as bfloat16.
  const std::string second("\xc0\x3f\x00\xc0", 4);
  const auto file = Read({{"layers.0.surrogate_tokens", {"F32", {3, 1, 2}, Bytes(first)}},
                          {"layers.1.surrogate_tokens", {"BF16", {1, 1, 2}, second}},
                          {"layers.0.other", {"F32", {1}, Bytes({7})}}});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->info.name, "long");
  EXPECT_EQ(file->info.family, "cast_layers");
  EXPECT_EQ(file->info.layers, 2);
  EXPECT_EQ(file->info.heads, 1);
  EXPECT_EQ(file->info.parameters, 8);
  EXPECT_TRUE(file->info.outputs.empty());
  ASSERT_EQ(file->layers.size(), 2u);

  const attention::CastLayer& layer = *file->layers[0];
  EXPECT_EQ(layer.surrogate_tokens(), 3);
  EXPECT_EQ(layer.heads(), 1);
  EXPECT_EQ(layer.head_dim(), 2);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(At<float>(layer.data(DType::kFloat32), i), first[i]);
  EXPECT_EQ(At<uint16_t>(layer.data(DType::kFloat16), 1), 0xc000);   // -2
  EXPECT_EQ(At<uint16_t>(layer.data(DType::kBFloat16), 2), 0x3f00);  // 0.5
  EXPECT_EQ(reinterpret_cast<uintptr_t>(layer.data(DType::kBFloat16)) % 64, 0u);
  EXPECT_EQ(At<float>(file->layers[1]->data(DType::kFloat32), 0), 1.5f);
  EXPECT_EQ(At<float>(file->layers[1]->data(DType::kFloat32), 1), -2.0f);
}

TEST(CastFileTest, AnotherFileIsRefusedWithItsName) {
  const auto file = Read({{"embeddings.weight", {"F32", {1}, Bytes({7})}}});
  EXPECT_THAT(file.status().message(), HasSubstr("x.safetensors"));
  EXPECT_THAT(file.status().message(), HasSubstr("layers.0.surrogate_tokens"));
}

TEST(CastFileTest, BadTensorsAreRefusedWithTheirNames) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string name = "layers.0.surrogate_tokens";
  for (const RawTensor& bad :
       {RawTensor{"F32", {2, 1}, Bytes({1, 2})}, RawTensor{"F32", {0, 1, 2}, ""},
        RawTensor{"F64", {1, 1, 1}, std::string(8, '\0')},
        RawTensor{"F32", {1, 1, 1}, Bytes({nan})}}) {
    const auto file = Read({{name, bad}});
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.status().message(), HasSubstr(name));
  }
}

TEST(CastFileTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadCastFile({.name = "x", .directory = "/nowhere.safetensors"}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace castor::encoder
