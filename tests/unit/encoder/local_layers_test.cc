// Families whose attention depends on places: MPNet's biases, ModernBERT's windows. What their
// configs may say, which kernels they list, and what their layers run. Parity with transformers is
// parity_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/network.h"
#include "tests/support/attention/spec.h"
#include "tests/support/checkpoints.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMpnet = "families/mpnet";
constexpr const char* kModern = "families/modernbert";

TEST(LocalLayersTest, NamesTheKeyOfMpnetsConfig) {
  ExpectKeysRefused(kMpnet, {{"relative_attention_num_buckets", 64, "must be 32"},
                             {"max_position_embeddings", 2, "no position behind"},
                             {"vocab_size", 1, "no id for the padding"},
                             {"hidden_act", "swiglu", "unknown activation"},
                             {"num_attention_heads", 5, "does not divide"}});
}

TEST(LocalLayersTest, NamesTheKeyOfModernBertsConfig) {
  ExpectKeysRefused(
      kModern,
      {{"num_attention_heads", 8, "odd size"},
       {"num_attention_heads", 5, "does not divide"},
       {"global_attn_every_n_layers", 0, "must be an integer"},
       {"local_attention", -2, "must be an integer"},
       {"local_attention", "128", "must be an integer"},
       {"sliding_window", 10, "contradicts local_attention"},
       {"global_rope_theta", 0.0, "within 1..1e+15"},
       {"local_rope_theta", 1e-308, "within 1..1e+15"},
       {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}, "\"yarn\" is not supported"},
       {"rope_scaling", {{"type", "linear"}}, "\"linear\" is not supported"},
       {"rope_scaling", 2, "\"missing\" is not supported"},
       {"rope_parameters", 3, "must be an object"},
       {"rope_parameters", {{"rope_theta", 1e4}}, "rope_theta: is not known"},
       {"rope_parameters", {{"full_attention", 1e4}}, "full_attention: must be an object"},
       {"rope_parameters",
        {{"sliding_attention", {{"rope_type", "yarn"}}}},
        "sliding_attention.rope_type: \"yarn\" is not supported"},
       {"rope_parameters",
        {{"full_attention", {{"partial_rotary_factor", 0.5}}}},
        "partial_rotary_factor: is not supported"},
       {"layer_types", {"full_attention"}, "does not name num_hidden_layers layers"},
       {"layer_types", 4, "must be a list of strings"},
       {"layer_types",
        {"full_attention", "sliding_attention", "linear_attention", "full_attention"},
        "\"linear_attention\" is not known"},
       {"norm_bias", "no", "true or false"},
       {"norm_eps", 1e-300, "within 1.2e-38..1"},
       {"hidden_activation", "swiglu", "unknown activation"}});
}

TEST(LocalLayersTest, BucketsGrowWithTheDistanceAndEndAtBothSides) {
  EXPECT_EQ(MpnetBucket(0), 0);
  EXPECT_EQ(MpnetBucket(-7), 7);
  EXPECT_EQ(MpnetBucket(7), 16 + 7);
  EXPECT_EQ(MpnetBucket(8), 16 + 8);
  EXPECT_EQ(MpnetBucket(11), 16 + 8);
  EXPECT_EQ(MpnetBucket(12), 16 + 9);  // 8 sqrt(2) = 11.3
  EXPECT_EQ(MpnetBucket(16), 16 + 10);
  EXPECT_EQ(MpnetBucket(90), 16 + 14);
  EXPECT_EQ(MpnetBucket(91), 31);
  EXPECT_EQ(MpnetBucket(-1'000'000), 15);
}

TEST(LocalLayersTest, ModelsListTheKernelsThatTheirLayersCanRun) {
  const auto kernels = [](const TinyModel& files) {
    const auto model = files.Load();
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->info().kernels : std::vector<KernelName>{};
  };
  EXPECT_THAT(kernels(TinyModel(kMpnet)), ElementsAre(KernelName::kVanilla));
  TinyModel modern(kModern);
  EXPECT_THAT(kernels(modern), ElementsAre(KernelName::kVanilla, KernelName::kClustered,
                                           KernelName::kImprovedClustered));
  modern.EditJson("config.json", [](json& config) {
    config["layer_types"] = std::vector<std::string>(4, "sliding_attention");
  });
  EXPECT_THAT(kernels(modern), ElementsAre(KernelName::kVanilla)) << "no layer sees all";
}

TEST(LocalLayersTest, OnlyLayersThatSeeAllRunTheRequestsKernel) {
  const auto model = TinyModel(kModern).Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto layers = (*model)->attention(attention::PlainClusters(4));
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layers, 2);  // 0 and 3 of 4
  EXPECT_EQ(NameOf(layers[0].spec.kernel), KernelName::kClustered);
  EXPECT_FALSE(layers[0].spec.window.any());
  EXPECT_EQ(layers[1].layers, 2);
  EXPECT_EQ(NameOf(layers[1].spec.kernel), KernelName::kVanilla);
  EXPECT_EQ(layers[1].spec.window, attention::SymmetricWindow(5));
  const auto mpnet = TinyModel(kMpnet).Load();
  ASSERT_TRUE(mpnet.ok()) << mpnet.status();
  const auto biased = (*mpnet)->attention(Vanilla{});
  ASSERT_EQ(biased.size(), 1U);
  EXPECT_NE(biased[0].spec.bias.table, nullptr);
  EXPECT_EQ(biased[0].spec.bias.reach, 128);
}

TEST(LocalLayersTest, ADeviceWithoutARowForALayerIsNamedWithTheModel) {
  const auto model = TinyModel(kModern).Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto layers = (*model)->attention(Vanilla{});
  EXPECT_TRUE(CheckServed(layers, "modern", attention::CpuVariants()).ok());
  // Rows that take no window, as a device's might.
  std::vector<attention::Variant> rows(attention::CpuVariants().begin(),
                                       attention::CpuVariants().end());
  for (attention::Variant& row : rows) {
    row.supports = [](const attention::Spec& spec) { return !spec.positional(); };
  }
  const absl::Status refused = CheckServed(layers, "modern", rows);
  EXPECT_EQ(ReasonOf(refused), Reason::kKernelNotAvailable);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("\"modern\""), HasSubstr("a window of 5")));
}

// Two texts, one of them long, and their rows.
struct Rows {
  explicit Rows(const TinyModel& files) : Rows(*files.Load()) {}
  explicit Rows(std::shared_ptr<const Model> of) : model(std::move(of)) {
    for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 100 + 6);
  }

  absl::Status Encode(const Kernel& kernel, RunControl& control) {
    rows.assign(ids.size() * kHidden, NAN);
    BatchItem item;
    item.cu_seqlens = offsets;
    item.ids = ids;
    item.output_kind = EncodeOutput::kTokenEmbeddings;
    item.dimensions = kHidden;
    item.output = rows.data();
    return RunOnHost({.model = model, .kernel = kernel, .items = {item}}, control);
  }

  std::shared_ptr<const Model> model;
  std::vector<int64_t> ids;
  std::vector<int32_t> offsets = {0, 4, 30};
  std::vector<float> rows;
};

TEST(LocalLayersTest, TheKeysOfTransformers5MeanTheSame) {
  TinyModel files(kModern);
  Rows before(files);
  files.EditJson("config.json", [](json& config) {
    config.erase("global_attn_every_n_layers");
    config.erase("global_rope_theta");
    config.erase("local_rope_theta");
    config["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention",
                             "full_attention"};
    config["rope_parameters"] = {
        {"full_attention", {{"rope_theta", 160000.0}, {"rope_type", "default"}}},
        {"sliding_attention", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}};
    config["sliding_window"] = 5;
  });
  Rows now(files);
  ASSERT_TRUE(before.Encode(Vanilla{}, RunToEnd()).ok());
  ASSERT_TRUE(now.Encode(Vanilla{}, RunToEnd()).ok());
  EXPECT_EQ(now.rows, before.rows);
}

TEST(LocalLayersTest, AWindowFromTheConfigIsKept) {
  TinyModel files(kModern);
  Rows before(files);
  files.EditJson("config.json", [](json& config) { config["local_attention"] = 8; });
  Rows now(files);
  ASSERT_TRUE(before.Encode(Vanilla{}, RunToEnd()).ok());
  ASSERT_TRUE(now.Encode(Vanilla{}, RunToEnd()).ok());
  EXPECT_NE(now.rows, before.rows);
  EXPECT_EQ(0, std::memcmp(now.rows.data(), before.rows.data(), 4 * kHidden * sizeof(float)))
      << "a text within both windows";
}

TEST(LocalLayersTest, ClustersRunBesideWindows) {
  Rows texts{TinyModel(kModern)};
  ASSERT_TRUE(texts.Encode(Vanilla{}, RunToEnd()).ok());
  const std::vector<float> exact = texts.rows;
  ASSERT_TRUE(texts.Encode(attention::PlainClusters(2), RunToEnd()).ok());
  EXPECT_NE(texts.rows, exact);
  // A cluster for each query, and all keys exact.
  ASSERT_TRUE(texts.Encode(attention::ImprovedClusters(64, 64), RunToEnd()).ok());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(texts.rows[i], exact[i], 1e-4);
}

TEST(LocalLayersTest, ClustersTakeTheirOptions) {
  Rows texts{TinyModel(kModern)};
  ASSERT_TRUE(texts.Encode(Vanilla{}, RunToEnd()).ok());
  const std::vector<float> exact = texts.rows;
  ImprovedClustered kernel = attention::ImprovedClusters(3, 2);
  std::vector<std::vector<float>> seen;
  for (const auto clustering : {Clustered::Clustering::kHash, Clustered::Clustering::kQuerySpace}) {
    for (const auto mass :
         {ImprovedClustered::RestMass::kCentroid, ImprovedClustered::RestMass::kQuery}) {
      kernel.clustering = clustering;
      kernel.rest_mass = mass;
      ASSERT_TRUE(texts.Encode(kernel, RunToEnd()).ok());
      for (const std::vector<float>& before : seen) EXPECT_NE(texts.rows, before);
      seen.push_back(texts.rows);
      ImprovedClustered enough = kernel;
      enough.clusters = enough.topk = 64;
      ASSERT_TRUE(texts.Encode(enough, RunToEnd()).ok());
      for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(texts.rows[i], exact[i], 1e-4);
    }
  }
}

TEST(LocalLayersTest, AForwardPassEndsAtAnyCheckpointAndAloneIsAsInABatch) {
  for (const char* family : {kMpnet, kModern}) {
    Rows texts{TinyModel(family)};
    ASSERT_TRUE(texts.Encode(Vanilla{}, RunToEnd()).ok());
    const std::vector<float> rows = texts.rows;
    bool ended = true;
    for (int last = 1; ended; ++last) {
      AtEvery control(
          [&] { return control.count() < last ? absl::OkStatus() : absl::AbortedError("enough"); });
      const absl::Status status = texts.Encode(Vanilla{}, control);
      ended = !status.ok();
      EXPECT_EQ(status, ended ? absl::AbortedError("enough") : absl::OkStatus());
    }
    EXPECT_EQ(texts.rows, rows);
    texts.ids.erase(texts.ids.begin(), texts.ids.begin() + 4);
    texts.offsets = {0, 26};
    ASSERT_TRUE(texts.Encode(Vanilla{}, RunToEnd()).ok());
    for (size_t i = 0; i < texts.rows.size(); ++i) {
      ASSERT_NEAR(texts.rows[i], rows[i + 4 * kHidden], 2e-6) << family;
    }
  }
}

}  // namespace
}  // namespace castor::encoder
