// The terms of the cost model: they count the work of the definitions, and of whole vectors.
#include "engine/attention/cost_terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"

namespace castor::attention {
namespace {

Spec PairSpec(const Kernel& kernel, int64_t heads = 2, int64_t head_dim = 4,
              int64_t value_dim = 6) {
  return MakeSpec(DType::kFloat32, kernel, heads, head_dim, value_dim);
}

double Term(const CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }

TEST(CostTermsTest, CountTheWorkOfTheDefinitions) {
  const auto queries = OffsetsOf({3, 10});
  const auto keys = OffsetsOf({5, 7});
  // Two heads; products of 4 + 6 dimensions; rows in vectors of 16.
  const CostTerms vanilla = CostTermsOf(PairSpec(Vanilla{}), queries, keys);
  EXPECT_EQ(Term(vanilla, CostTerm::kLaunch), 1);
  EXPECT_EQ(Term(vanilla, CostTerm::kWakes), 0);
  EXPECT_EQ(Term(vanilla, CostTerm::kTasks), 4);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kMemory), 4 * 2 * (13 + 12) * 10 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kTokens), 2 * (13 + 12 + 12) * 16 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kStores), 2 * 13 * 16 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kRows), 2 * (13 + 12) * 2 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kTails), 2 * (13 + 12) * (4 + 6) * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kScores), 2 * 16 * (5 + 7) * 10 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kBlocks), 2 * 16 * (1 + 1) * 10 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(vanilla, CostTerm::kWeights), 2 * 16 * (5 + 7) * 1e-6);
  EXPECT_EQ(Term(vanilla, CostTerm::kHash), 0);
  EXPECT_EQ(Term(vanilla, CostTerm::kLloyd), 0);
  EXPECT_EQ(Term(vanilla, CostTerm::kExact), 0);

  // Four clusters, but three in the sequence that has only three queries.
  ImprovedClustered parameters;
  parameters.clusters = 4;
  parameters.iterations = 9;
  parameters.bits = 8;
  parameters.topk = 6;
  const CostTerms improved = CostTermsOf(PairSpec(parameters), queries, keys);
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kScores), 2 * 16 * (5 + 7) * 10 * 1e-6);
  // Scores of whole vectors of keys, and outputs of whole vectors of columns.
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kExact),
                   2 * (3 * (16 * 4 + 5 * 16) + 10 * (16 * 4 + 6 * 16)) * 1e-6);
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kRefined), 2 * (3 + 10) * 16 * 1e-6);
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kClusters), 2 * (3 + 4) * 1e-6);
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kGather), 2 * (3 * 5 + 4 * 6) * (16 + 16) * 1e-6);
  EXPECT_DOUBLE_EQ(Term(improved, CostTerm::kPlanes), 8 * 4 * 1e-6);
  const CostTerms clustered = CostTermsOf(PairSpec(Clustered(parameters)), queries, keys);
  EXPECT_EQ(Term(clustered, CostTerm::kExact), 0);
  EXPECT_EQ(Term(clustered, CostTerm::kGather), 0);
  EXPECT_EQ(Term(clustered, CostTerm::kScores), Term(improved, CostTerm::kScores));
}

TEST(CostTermsTest, OptionsBeyondThePaperAreCounted) {
  const auto offsets = OffsetsOf({100});
  ImprovedClustered kernel;
  kernel.clusters = 10;
  kernel.iterations = 1;
  kernel.topk = 6;
  const auto terms = [&] { return CostTermsOf(PairSpec(kernel, 1, 16, 32), offsets, offsets); };
  const CostTerms paper = terms();
  kernel.rest_mass = ImprovedClustered::RestMass::kQuery;
  const CostTerms own = terms();
  EXPECT_NEAR(Term(own, CostTerm::kScores) - Term(paper, CostTerm::kScores), 16 * 100 * 16 * 1e-6,
              1e-12);
  EXPECT_NEAR(Term(own, CostTerm::kExact) - Term(paper, CostTerm::kExact), 100 * 16 * 1e-6, 1e-12);
  kernel.rest_mass = ImprovedClustered::RestMass::kCentroid;
  kernel.clustering = Clustered::Clustering::kQuerySpace;
  const CostTerms queries = terms();
  EXPECT_EQ(Term(queries, CostTerm::kHash), 0);
  EXPECT_EQ(Term(queries, CostTerm::kPlanes), 0);
  EXPECT_EQ(Term(queries, CostTerm::kLloyd), 0);
  // Two assignments of 100 queries, in 112 lanes, to ten centroids, their images, and the
  // covariance of 64 keys.
  EXPECT_NEAR(Term(queries, CostTerm::kScores) - Term(paper, CostTerm::kScores),
              (2 * (112 * 10 * (16 + 8) + 10 * 16 * 16) + 64 * 16 * 16) * 1e-6, 1e-12);
}

TEST(CostTermsTest, ACausalMaskHalvesLongSequencesAndSparesNothingBehindTheKeys) {
  const auto scores = [](bool causal, int32_t queries, int32_t keys) {
    return Term(CostTermsOf(PairSpec(Vanilla{.causal = causal}, 2, 64, 64), OffsetsOf({queries}),
                            OffsetsOf({keys})),
                CostTerm::kScores);
  };
  EXPECT_NEAR(scores(true, 8192, 8192) / scores(false, 8192, 8192), 0.5, 0.01);
  EXPECT_NEAR(scores(true, 8192, 16) / scores(false, 8192, 16), 1, 0.01);
  EXPECT_EQ(scores(true, 1, 1), scores(false, 1, 1));
}

TEST(CostTermsTest, AWindowMakesTimeLinear) {
  const auto terms = [](int32_t tokens, std::optional<int64_t> window) {
    Spec spec = PairSpec(Vanilla{}, 2, 64, 64);
    spec.window = window;
    return CostTermsOf(spec, OffsetsOf({tokens}), OffsetsOf({tokens}));
  };
  const CostTerms shorter = terms(192 * 8, 64);
  const CostTerms longer = terms(192 * 64, 64);
  for (const CostTerm term : {CostTerm::kScores, CostTerm::kWeights, CostTerm::kTokens,
                              CostTerm::kRows, CostTerm::kTasks}) {
    EXPECT_NEAR(Term(longer, term) / Term(shorter, term), 8, 1e-9) << static_cast<int>(term);
  }
  EXPECT_DOUBLE_EQ(Term(longer, CostTerm::kScores) / Term(terms(192 * 64, {}), CostTerm::kScores),
                   (2 * 64 + 1 + 48) / (192.0 * 64));
  EXPECT_EQ(Term(terms(20, 64), CostTerm::kScores), Term(terms(20, {}), CostTerm::kScores));
}

TEST(CostTermsTest, CastsTermsScaleAsItsDefinitionSays) {
  const auto terms = [](const Cast& cast, int32_t tokens, int64_t surrogates, int64_t heads = 4) {
    const auto offsets = OffsetsOf({tokens});
    return CostTermsOf(MakeSpec(DType::kFloat32, cast, heads, 64, 64, surrogates), offsets,
                       offsets);
  };
  const Cast top = CastOf(256);
  // At a fixed size of the clusters, twice the clusters are twice the work, of every part.
  for (const CostTerm term : {CostTerm::kScores, CostTerm::kGather, CostTerm::kSelect}) {
    EXPECT_NEAR(Term(terms(top, 4096, 32), term) / Term(terms(top, 4096, 16), term), 2, 0.05);
  }
  // Twice the tokens are twice the affinities, but no more inside the clusters.
  EXPECT_NEAR(
      Term(terms(top, 8192, 16), CostTerm::kSelect) / Term(terms(top, 4096, 16), CostTerm::kSelect),
      2, 0.01);
  EXPECT_EQ(Term(terms(top, 8192, 16), CostTerm::kGather),
            Term(terms(top, 4096, 16), CostTerm::kGather));
  // By default clusters divide the tokens: quadratic in the tokens for few surrogates.
  EXPECT_NEAR(Term(terms(CastOf(0), 16384, 2), CostTerm::kScores) /
                  Term(terms(CastOf(0), 8192, 2), CostTerm::kScores),
              4, 0.1);
  // The readings: who chooses the members, and with what function.
  const Cast single = CastOf(256, Cast::Clustering::kSingleAssignmentTopK);
  EXPECT_EQ(Term(terms(single, 4096, 16), CostTerm::kSelect), 0);
  EXPECT_GT(Term(terms(single, 4096, 16), CostTerm::kAssign), 0);
  Cast laplace = top;
  laplace.attention_function = Cast::AttentionFunction::kLaplace;
  EXPECT_EQ(Term(terms(top, 4096, 16), CostTerm::kLaplace), 0);
  EXPECT_EQ(Term(terms(laplace, 4096, 16), CostTerm::kLaplace),
            Term(terms(laplace, 4096, 16), CostTerm::kWeights));
  Cast per_head = top;
  per_head.head_clustering = Cast::HeadClustering::kPerHead;
  EXPECT_NEAR(Term(terms(per_head, 4096, 16), CostTerm::kSelect) /
                  Term(terms(top, 4096, 16), CostTerm::kSelect),
              4, 1e-9);
}

// Codes are compared in blocks of 512, however few there are.
TEST(CostTermsTest, ShortSequencesFillNoBlockOfCodes) {
  Clustered parameters;
  parameters.clusters = 10;
  const auto lloyd = [&](int32_t queries) {
    const auto offsets = OffsetsOf({queries});
    return Term(CostTermsOf(PairSpec(parameters), offsets, offsets), CostTerm::kLloyd);
  };
  EXPECT_DOUBLE_EQ(lloyd(200), lloyd(512));
  EXPECT_DOUBLE_EQ(lloyd(513), 2 * lloyd(512));
}

// The last to end is the worker with the longest task.
TEST(CostTermsTest, ALongTaskKeepsOneWorkerBusy) {
  const Team two = {.workers = 2};
  const auto speed = [&](const std::vector<int32_t>& keys) {
    const auto queries = OffsetsOf(std::vector<int32_t>(keys.size(), 192));
    const Spec spec = PairSpec(Vanilla{}, 1, 64, 64);
    return Term(CostTermsOf(spec, queries, OffsetsOf(keys)), CostTerm::kScores) /
           Term(CostTermsOf(spec, queries, OffsetsOf(keys), two), CostTerm::kScores);
  };
  EXPECT_DOUBLE_EQ(speed({1000, 1000}), 2);
  EXPECT_DOUBLE_EQ(speed({1000, 3000}), 4.0 / 3);
}

// Two workers do not help where there is one task, or too little work to wake the second.
TEST(CostTermsTest, ATeamHelpsAsFarAsThereAreTasks) {
  const auto scores = [](int64_t heads, int32_t queries, int32_t keys, const Team& team) {
    return Term(CostTermsOf(PairSpec(Vanilla{}, heads, 64, 64), OffsetsOf({queries}),
                            OffsetsOf({keys}), team),
                CostTerm::kScores);
  };
  const Team two = {.workers = 2};
  const auto speed = [&](int64_t heads, int32_t queries, int32_t keys, const Team& team) {
    return scores(heads, queries, keys, {}) / scores(heads, queries, keys, team);
  };
  EXPECT_DOUBLE_EQ(speed(2, 192, 4096, two), 2);
  EXPECT_DOUBLE_EQ(speed(1, 192, 4096, two), 1);
  EXPECT_DOUBLE_EQ(speed(3, 192, 4096, two), 1.5);
  EXPECT_DOUBLE_EQ(speed(2, 16, 16, two), 1);
  EXPECT_DOUBLE_EQ(speed(2, 192, 4096, {.workers = 2, .gain = 0.5}), 1.5);
  EXPECT_EQ(
      Term(CostTermsOf(PairSpec(Vanilla{}, 2, 64, 64), OffsetsOf({192}), OffsetsOf({4096}), two),
           CostTerm::kWakes),
      1);
}

TEST(CostTermsTest, LargeProblemsDoNotOverflow) {
  const auto offsets = OffsetsOf({1 << 30, (1 << 30) - 1});
  for (const Kernel& kernel :
       {Kernel(Vanilla{.causal = true}), Kernel(ImprovedClustered{}), Kernel(CastOf(0))}) {
    Spec spec = PairSpec(kernel, 128, 256, 256);
    spec.surrogates = 1024;
    for (const double term : CostTermsOf(spec, offsets, offsets, {.workers = 64})) {
      EXPECT_GE(term, 0);
      EXPECT_TRUE(std::isfinite(term));
    }
  }
}

}  // namespace
}  // namespace castor::attention
