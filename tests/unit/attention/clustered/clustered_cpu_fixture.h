// Shared by the tests of clustered attention on the CPU: a row of the variant table, and problems
// for its kernel.
#pragma once

#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/twins/clustered.h"

namespace castor::attention {

class ClusteredCpuTest : public VariantTest {
 protected:
  using Clustering = Clustered::Clustering;
  using RestMass = ImprovedClustered::RestMass;

  static bool improved() { return GetParam().kernel == KernelName::kImprovedClustered; }

  // A spec with this row's kernel; `topk` is ignored by kernels without one.
  Spec SpecOf(DType dtype, int32_t clusters, int64_t head_dim, int64_t value_dim, int64_t heads = 1,
              int32_t topk = 8) {
    const uint64_t seed = random_();
    return MakeSpec(dtype,
                    improved() ? Kernel(ImprovedClusters(clusters, topk, seed))
                               : Kernel(PlainClusters(clusters, seed)),
                    heads, head_dim, value_dim);
  }

  // Calls f(spec) with each combination of options that the row's kernel has, its paper's first:
  // clusters of codes or of the queries themselves, the centroid's mass of the rest or each
  // query's.
  template <typename F>
  static void ForOptions(Spec spec, F f) {
    for (const auto clustering : {Clustering::kHash, Clustering::kQuerySpace}) {
      for (const auto mass : {RestMass::kCentroid, RestMass::kQuery}) {
        ClusteringOf(spec).clustering = clustering;
        if (auto* kernel = std::get_if<ImprovedClustered>(&spec.kernel)) {
          kernel->rest_mass = mass;
        } else if (mass == RestMass::kQuery) {
          continue;
        }
        SCOPED_TRACE(Describe(spec));
        f(spec);
      }
    }
  }

  static void ExpectRight(OwnedProblem& problem) {
    Run(problem);
    EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)),
              Tolerance(problem.spec.dtype));
  }

  static void ExpectVanilla(OwnedProblem& problem) {
    Run(problem);
    EXPECT_LE(RelativeError(problem, VanillaOfTheSame(problem)), Tolerance(problem.spec.dtype));
  }
};

}  // namespace castor::attention
