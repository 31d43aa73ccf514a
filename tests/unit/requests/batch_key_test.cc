// What may share a batch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/requests/work.h"

namespace castor {
namespace {

TEST(BatchKeyTest, TellsApartWhateverALaunchHasInCommon) {
  attention::Spec base;
  base.heads = base.kv_heads = 2;
  base.head_dim = 64;
  base.value_dim = 64;
  base.softmax_scale = 0.125;
  EXPECT_EQ(BatchKey(base), BatchKey(base));
  std::vector<attention::Spec> specs(33, base);
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
  EXPECT_EQ(BatchKey(1, Vanilla{}), BatchKey(1, Vanilla{}));
  EXPECT_NE(BatchKey(1, Vanilla{}), BatchKey(2, Vanilla{}));
  EXPECT_NE(BatchKey(1, Vanilla{}), BatchKey(1, Clustered{}));
}

}  // namespace
}  // namespace castor
