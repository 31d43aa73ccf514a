// Families whose attention depends on positions: MPNet's biases, ModernBERT's windows. What their
// configs may say, and what their layers run. Parity with transformers is parity_test.cc's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/network/network.h"
#include "engine/kernel_table.h"
#include "tests/support/attention/spec.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kMpnet = "families/mpnet";
constexpr const char* kModern = "families/modernbert";

TEST(LocalLayersTest, NamesTheKeyOfMpnetsConfig) {
  ExpectKeysRefused(kMpnet, {{"relative_attention_num_buckets", 64, "must be 32"},
                             {"max_position_embeddings", 2, "no position after"},
                             {"vocab_size", 1, "no id for padding"},
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

TEST(LocalLayersTest, ClustersTakeTheirOptions) {
  const auto model = TinyModel(kModern).Load();
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<int64_t> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 100 + 6);
  const std::vector<int32_t> offsets = {0, 4, 30};
  const auto encode = [&](const Kernel& kernel) {
    std::vector<float> rows(ids.size() * kHidden, NAN);
    BatchItem item{.cu_seqlens = offsets, .ids = ids};
    item.output_kind = EncodeOutput::kTokenEmbeddings;
    item.dimensions = kHidden;
    item.output = rows.data();
    const absl::Status status =
        RunOnHost({.model = *model, .kernel = kernel, .items = {item}}, RunToEnd());
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  };
  const std::vector<float> exact = encode(Vanilla{});
  ImprovedClustered kernel = attention::ImprovedClusters(3, 2);
  std::vector<std::vector<float>> seen;
  for (const auto clustering : {Clustered::Clustering::kHash, Clustered::Clustering::kQuerySpace}) {
    for (const auto mass :
         {ImprovedClustered::RestMass::kCentroid, ImprovedClustered::RestMass::kQuery}) {
      kernel.clustering = clustering;
      kernel.rest_mass = mass;
      const std::vector<float> rows = encode(kernel);
      for (const std::vector<float>& before : seen) EXPECT_NE(rows, before);
      seen.push_back(rows);
      ImprovedClustered enough = kernel;
      enough.clusters = enough.topk = 64;
      const std::vector<float> near = encode(enough);
      for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(near[i], exact[i], 1e-4);
    }
  }
}

}  // namespace
}  // namespace castor::encoder
