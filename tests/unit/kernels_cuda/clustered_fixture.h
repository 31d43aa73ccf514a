// Shared by the tests of clustered attention's CUDA kernels.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/clustered_stages.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/clustered.h"
#include "tests/unit/kernels_cuda/clustered_run.h"

namespace castor::attention {

inline std::vector<Kernel> BothKernels(int32_t clusters, int32_t topk, uint64_t seed) {
  return {PlainClusters(clusters, seed), ImprovedClusters(clusters, topk, seed)};
}

class ClusteredCudaTest : public testing::Test, protected Seeded {
 protected:
  ClusteredCudaTest() { cuda_emulator::SetSchedule(seed_); }

  std::vector<int32_t> Lengths(int sequences, int32_t longest) {
    std::vector<int32_t> lengths(sequences);
    for (int32_t& length : lengths) length = UpTo(longest);
    return lengths;
  }

  // Checks the codes, except bits within rounding of their plane; labels and order for these codes,
  // bit for bit; and the rows. Rows are compared only if float64 finds the same labels, which is
  // nearly always: a query may lie almost on a plane.
  void ExpectRight(OwnedProblem& problem) {
    problem.output.Clear();
    const ClusteredRun run(problem);
    for (int64_t s = 0; s < problem.view.sequences(); ++s) {
      for (int64_t h = 0; h < problem.spec.heads; ++h) ExpectCodes(problem, run, s, h);
    }
    const ClusteredStageErrors errors = CompareClusteredStages(problem, run.stages());
    EXPECT_TRUE(errors.labels_are_the_twins);
    EXPECT_TRUE(errors.sorted);
    ++cases_;
    if (!errors.labels_are_exact) return;
    ++compared_;
    std::vector<double> log_sums;
    const std::vector<double> rows = ClusteredReference(problem.spec, problem.view, &log_sums);
    EXPECT_LE(RelativeError(problem, rows), Tolerance(problem.spec.dtype));
    for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
      ASSERT_NEAR(problem.log_sum_exp[i], log_sums[i], 4e-6 * std::max(1.0, std::abs(log_sums[i])))
          << "row " << i;
    }
  }

  void ExpectCodes(const OwnedProblem& problem, const ClusteredRun& run, int64_t s, int64_t h) {
    const int64_t dim = problem.spec.head_dim;
    const HashPlanes planes = MakeHashPlanes(ClusteringOf(problem.spec), dim);
    const std::vector<uint64_t> codes = run.Codes(s, h);
    for (size_t i = 0; i < codes.size(); ++i) {
      const int64_t token = problem.cu_seqlens_q[s] + static_cast<int64_t>(i);
      std::vector<double> query(dim);
      for (int64_t e = 0; e < dim; ++e) {
        query[e] = problem.query.Get(token * problem.view.query_stride + h * dim + e);
      }
      for (int t = 0; t < planes.bits; ++t) {
        const double margin = HashMargin(planes, query.data(), t);
        if (std::abs(margin) > 1e-5) {
          ASSERT_EQ(codes[i] >> t & 1, margin > 0 ? 1u : 0u) << "bit " << t << " of query " << i;
        }
      }
    }
  }

  int cases_ = 0;
  int compared_ = 0;  // those whose rows were compared
};

}  // namespace castor::attention
