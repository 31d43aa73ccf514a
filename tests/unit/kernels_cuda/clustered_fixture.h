// Shared by the tests of clustered attention's CUDA kernels, which run on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/attention/cuda/clustered_shape.h"
#include "engine/kernels/cuda/clustered/clustered.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/clustered_stages.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/clustered.h"

namespace castor::attention {

// Runs the kernels on the emulator, for an attention test's problem.
class ClusteredRun {
 public:
  explicit ClusteredRun(const OwnedProblem& problem)
      : view_(problem.view), shape_(cuda::ClusteredShapeOf(problem.spec)) {
    const Spec& spec = problem.spec;
    const Clustered& parameters = ClusteringOf(spec);
    const HashPlanes planes = MakeHashPlanes(parameters, spec.head_dim);
    const std::vector<uint32_t> draws = cuda::CentroidDraws(parameters);
    plan_ = kernels::cuda::PlanClustered(shape_, problem.cu_seqlens_q, problem.cu_seqlens_k);
    // Exactly the reported size, so that AddressSanitizer guards its end; filled with NaN.
    workspace_.reset(static_cast<std::byte*>(
        std::aligned_alloc(256, std::max<int64_t>(plan_.workspace_bytes, 256))));
    std::fill_n(workspace_.get(), plan_.workspace_bytes, std::byte{0xff});

    kernels::cuda::ClusteredProblem on_device;
    on_device.query = view_.query;
    on_device.key = view_.key;
    on_device.value = view_.value;
    on_device.output = view_.output;
    on_device.query_stride = view_.query_stride;
    on_device.key_stride = view_.key_stride;
    on_device.value_stride = view_.value_stride;
    on_device.output_stride = view_.output_stride;
    on_device.value_head_stride = view_.value_head_stride;
    on_device.log_sum_exp = view_.log_sum_exp;
    on_device.offsets = plan_.offsets.data();
    on_device.normals = planes.normals.data();
    on_device.biases = planes.biases.data();
    on_device.draws = draws.data();
    on_device.workspace = workspace_.get();
    EXPECT_EQ(kernels::cuda::Run(shape_, plan_, on_device, nullptr), cudaSuccess);
    laid_out_ = kernels::cuda::LayOut(shape_, plan_, workspace_.get());
  }

  const kernels::cuda::ClusteredWorkspace& workspace() const { return laid_out_; }

  // The stages' results.
  ClusteredStages stages() const {
    const int64_t count = shape_.heads * view_.query_tokens();
    return {{laid_out_.codes, laid_out_.codes + count},
            {laid_out_.labels, laid_out_.labels + count},
            {laid_out_.order, laid_out_.order + count}};
  }

  // The codes of a sequence in one head.
  std::vector<uint64_t> Codes(int64_t sequence, int64_t head) const {
    return Slice(laid_out_.codes, sequence, head);
  }
  std::vector<int32_t> Labels(int64_t sequence, int64_t head) const {
    return Slice(laid_out_.labels, sequence, head);
  }

 private:
  struct FreeDeleter {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  template <typename T>
  std::vector<T> Slice(const T* all, int64_t sequence, int64_t head) const {
    const T* const row = all + head * view_.query_tokens();
    return {row + view_.cu_seqlens_q[sequence], row + view_.cu_seqlens_q[sequence + 1]};
  }

  Problem view_;
  kernels::cuda::ClusteredShape shape_;
  kernels::cuda::ClusteredPlan plan_;
  std::unique_ptr<std::byte, FreeDeleter> workspace_;
  kernels::cuda::ClusteredWorkspace laid_out_;
};

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
