// What may share a batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/kernel_table.h"
#include "engine/requests/resolve_encode.h"
#include "engine/requests/staging.h"
#include "engine/requests/work.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(BatchKeyTest, TellsApartWhateverALaunchHasInCommon) {
  attention::Spec base;
  base.heads = base.kv_heads = 2;
  base.head_dim = 64;
  base.value_dim = 64;
  base.softmax_scale = 0.125;
  EXPECT_EQ(BatchKey(base), BatchKey(base));
  std::vector<attention::Spec> specs(34, base);
  specs[1].dtype = DType::kBFloat16;
  specs[2].heads = 3;
  specs[3].head_dim = 32;
  specs[4].value_dim = 32;
  specs[5].softmax_scale = 0.25;
  specs[6].kernel = Vanilla{.causal = true};
  specs[7].kernel = Clustered{};
  specs[8].kernel = ImprovedClustered{};
  Clustered clustered;
  const auto vary = [&](size_t at, auto change) {
    Clustered changed = clustered;
    change(changed);
    specs[at].kernel = changed;
  };
  vary(9, [](Clustered& kernel) { kernel.clusters = 7; });
  vary(10, [](Clustered& kernel) { kernel.iterations = 7; });
  vary(11, [](Clustered& kernel) { kernel.bits = 7; });
  vary(12, [](Clustered& kernel) { kernel.hash_bias = false; });
  vary(13, [](Clustered& kernel) { kernel.seed = 7; });
  ImprovedClustered improved;
  improved.topk = 7;
  specs[14].kernel = improved;
  Cast cast;
  cast.surrogates = std::string("model/1");
  specs[15].kernel = cast;
  cast.surrogates = std::string("model/2");
  specs[16].kernel = cast;
  cast.cluster_size = 7;
  specs[17].kernel = cast;
  cast.attention_function = Cast::AttentionFunction::kLaplace;
  specs[18].kernel = cast;
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  specs[19].kernel = cast;
  vary(20, [](Clustered& kernel) { kernel.clustering = Clustered::Clustering::kQuerySpace; });
  improved.rest_mass = ImprovedClustered::RestMass::kQuery;
  specs[21].kernel = improved;
  improved.rest_groups = 7;
  specs[33].kernel = improved;
  specs[22].log_sum_exp = true;
  specs[23].window.left = 7;
  specs[24].window.right = 7;
  specs[25].window = {.left = 7, .always_visible = 7};
  specs[26].bias.reach = 7;
  const float slope = 0;  // of a request's own memory
  specs[27].bias.slopes = &slope;
  specs[28].softcap = 7;
  specs[29].placed = true;
  specs[30].key_bias_heads = 1;
  specs[31].kv_heads = 1;
  specs[32].value_is_key_prefix = true;
  for (size_t a = 0; a < specs.size(); ++a) {
    for (size_t b = a + 1; b < specs.size(); ++b) {
      EXPECT_NE(BatchKey(specs[a]), BatchKey(specs[b])) << a << " and " << b;
    }
  }
  EXPECT_EQ(BatchKey(1, Vanilla{}, false), BatchKey(1, Vanilla{}, false));
  EXPECT_NE(BatchKey(1, Vanilla{}, false), BatchKey(2, Vanilla{}, false));
  EXPECT_NE(BatchKey(1, Vanilla{}, false), BatchKey(1, Vanilla{}, true));
  EXPECT_NE(BatchKey(1, Vanilla{}, false), BatchKey(1, Clustered{}, false));
}

// The attention kernel that an encode request gets, and the error for one that a model refuses.

ModelInfo SoftmaxModel() {
  ModelInfo info;
  info.name = "soft";
  info.kernels = SoftmaxKernels();
  info.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
  return info;
}

ModelInfo CastModel() {
  ModelInfo info = SoftmaxModel();
  info.name = "bytes";
  info.kernels = {KernelName::kCast};
  Cast own;
  own.clustering = Cast::Clustering::kSingleAssignmentTopK;
  own.cluster_size = 20;
  info.kernel = own;
  return info;
}

absl::StatusOr<Kernel> Choose(std::optional<Kernel> kernel, const ModelInfo& info) {
  EncodeRequest request;
  request.kernel = std::move(kernel);
  return ChooseEncodeKernel(request, info);
}

void ExpectRefused(Kernel kernel, Reason reason, const std::string& says) {
  const auto chosen = Choose(std::move(kernel), CastModel());
  ASSERT_FALSE(chosen.ok()) << says;
  EXPECT_EQ(ReasonOf(chosen.status()), reason) << chosen.status();
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(says));
}

void ExpectFieldRefused(Kernel kernel, const std::string& field) {
  const auto chosen = Choose(std::move(kernel), CastModel());
  ASSERT_FALSE(chosen.ok()) << field;
  EXPECT_EQ(FieldOf(chosen.status()), field) << chosen.status();
}

TEST(EncodeKernelTest, AModelsOwnKernelIsTheDefault) {
  EXPECT_TRUE(std::holds_alternative<Vanilla>(*Choose(std::nullopt, SoftmaxModel())));
  const auto cast = Choose(std::nullopt, CastModel());
  ASSERT_TRUE(cast.ok());
  ASSERT_TRUE(std::holds_alternative<Cast>(*cast));
  EXPECT_EQ(std::get<Cast>(*cast).cluster_size, 20);
}

TEST(EncodeKernelTest, TheAutomaticKernelIsExact) {
  const auto chosen = Choose(Automatic{}, SoftmaxModel());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_TRUE(std::holds_alternative<Vanilla>(*chosen));
  const auto without = Choose(Automatic{.allowed = {KernelName::kClustered}}, SoftmaxModel());
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(FieldOf(without.status()), "automatic.allowed");
}

TEST(EncodeKernelTest, CausalLayersRunCausalVanillaAlone) {
  ModelInfo info = SoftmaxModel();
  info.kernels = {KernelName::kVanilla};
  info.kernel = Vanilla{.causal = true};
  for (const std::optional<Kernel>& asked :
       {std::optional<Kernel>(), std::optional<Kernel>(Vanilla{}),
        std::optional<Kernel>(Vanilla{.causal = true}), std::optional<Kernel>(Automatic{})}) {
    const auto chosen = Choose(asked, info);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_TRUE(std::get<Vanilla>(*chosen).causal);
  }
  for (const Kernel& asked : {Kernel(Clustered{}), Kernel(ImprovedClustered{})}) {
    const auto chosen = Choose(asked, info);
    ASSERT_FALSE(chosen.ok());
    EXPECT_EQ(ReasonOf(chosen.status()), Reason::kKernelNotAvailable);
    EXPECT_THAT(std::string(chosen.status().message()),
                HasSubstr("cannot run " + std::string(NameOf(NameOf(asked)))));
  }
}

TEST(EncodeKernelTest, CastLayersRunCastAlone) {
  const std::string why = "model \"bytes\" has CAST layers";
  ExpectRefused(Vanilla{}, Reason::kKernelNotAvailable, "vanilla: " + why);
  ExpectRefused(Clustered{}, Reason::kKernelNotAvailable, "clustered: " + why);
  ExpectRefused(ImprovedClustered{}, Reason::kKernelNotAvailable, "improved_clustered: " + why);
  ExpectRefused(Automatic{}, Reason::kKernelNotAvailable, "automatic: " + why);
}

TEST(EncodeKernelTest, CastMayBeNamedButNotChanged) {
  const auto named = Choose(Cast{}, CastModel());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(std::get<Cast>(*named).cluster_size, 20);
  Cast same;
  same.clustering = Cast::Clustering::kSingleAssignmentTopK;
  same.cluster_size = 20;
  EXPECT_TRUE(Choose(same, CastModel()).ok());

  Cast other;
  other.cluster_size = 21;
  ExpectFieldRefused(other, "cast.cluster_size");
  other = {};
  other.attention_function = Cast::AttentionFunction::kLaplace;
  ExpectFieldRefused(other, "cast.attention_function");
  other = {};
  other.gate_temperature = Cast::GateTemperature::kNone;
  ExpectFieldRefused(other, "cast.gate_temperature");
  other = {};
  other.head_clustering = Cast::HeadClustering::kPerHead;
  ExpectFieldRefused(other, "cast.head_clustering");
  other = {};
  other.surrogates = "bytes/0";
  ExpectFieldRefused(other, "cast.layer");
  other = {};
  std::get<TensorInput>(other.surrogates).shape = {1, 2, 3};
  ExpectFieldRefused(other, "cast.surrogate_tokens");
  other = {};
  other.gate.shape = {4};
  ExpectFieldRefused(other, "cast.gate");

  ModelInfo top_k = CastModel();
  std::get<Cast>(top_k.kernel).clustering = Cast::Clustering::kTopK;
  const auto single = Choose(same, top_k);
  ASSERT_FALSE(single.ok());
  EXPECT_EQ(FieldOf(single.status()), "cast.clustering");
}

TEST(EncodeKernelTest, OtherModelsRunNoCast) {
  const auto chosen = Choose(Cast{}, SoftmaxModel());
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(ReasonOf(chosen.status()), Reason::kKernelNotAvailable);
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("cannot run cast"));
  EXPECT_TRUE(Choose(Clustered{}, SoftmaxModel()).ok());
}

// A reranker's query stands before each document.
TEST(CopyTextsTest, CopiesARepeatedTextOnce) {
  const std::string query = "query", documents = "ab";
  TextInput input;
  input.texts.assign(1000, query);
  for (int i = 0; i < 1000; ++i)
    input.pairs.push_back(std::string_view(documents).substr(i % 2, 1));
  EncodeWork work;
  work.request.input = input;
  CopyTexts(&work);
  const auto& own = std::get<TextInput>(work.request.input);
  EXPECT_EQ(work.text.size(), query.size() + 1000);
  EXPECT_EQ(own.texts, input.texts);
  EXPECT_EQ(own.pairs, input.pairs);
  const auto is_own = [&](std::string_view text) {
    return text.data() >= work.text.data() && text.end() <= work.text.data() + work.text.size();
  };
  EXPECT_THAT(own.texts, testing::Each(testing::Truly(is_own)));
  EXPECT_THAT(own.pairs, testing::Each(testing::Truly(is_own)));
}

}  // namespace
}  // namespace castor
