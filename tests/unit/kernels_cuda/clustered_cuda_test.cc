// Clustered and improved clustered attention's CUDA kernels, on the emulator, against the twins.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/sanitizer.h"
#include "tests/unit/kernels_cuda/clustered_fixture.h"

namespace castor::attention {
namespace {

constexpr int32_t kLongest = kSanitized ? 70 : 170;

TEST_F(ClusteredCudaTest, MatchesTheTwin) {
  const std::pair<int64_t, int64_t> dims[] = {{64, 64}, {7, 5},    {40, 72},
                                              {1, 1},   {33, 140}, {128, 128}};
  for (const DType dtype : kFloatTypes) {
    for (const auto& [head_dim, value_dim] : dims) {
      for (const Kernel& kernel :
           {Kernel(PlainClusters(9, seed_)), Kernel(ImprovedClusters(9, 6, seed_))}) {
        if (kSanitized && random_() % 2 == 0) continue;  // half of the cases
        SCOPED_TRACE(std::string(NameOf(dtype)) + " d=" + std::to_string(head_dim));
        OwnedProblem problem(
            WithKvHeads(WithLogSumExp(MakeSpec(dtype, kernel, 2, head_dim, value_dim)), UpTo(2)),
            Lengths(3, kLongest), Lengths(3, kLongest), {3, 1, 2, 5});
        RandomizeAroundCentres(problem, 9, random_);
        ExpectRight(problem);
      }
    }
  }
  EXPECT_GE(compared_, cases_ * 3 / 4);
}

TEST_F(ClusteredCudaTest, AloneIsTheSameAsInABatch) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(11, 5, seed_)) {
      if (kSanitized && random_() % 2 == 0) continue;  // half of the cases
      SCOPED_TRACE(NameOf(dtype));
      const Spec spec = WithLogSumExp(MakeSpec(dtype, kernel, 2, 32, 32));
      OwnedProblem batch(spec, {70, 1, 130, 5}, {90, 3, 300, 1});
      batch.Randomize(random_);
      const ClusteredRun together(batch);
      for (int64_t s = 0; s < batch.view.sequences(); ++s) {
        OwnedProblem alone(spec, {batch.cu_seqlens_q[s + 1] - batch.cu_seqlens_q[s]},
                           {batch.cu_seqlens_k[s + 1] - batch.cu_seqlens_k[s]});
        CopySequence(batch, s, alone, 0);
        const ClusteredRun by_itself(alone);
        EXPECT_EQ(OutputOf(alone, 0), OutputOf(batch, s)) << "sequence " << s;
        const auto logs = batch.log_sum_exp.begin() + batch.cu_seqlens_q[s] * spec.heads;
        EXPECT_TRUE(std::equal(alone.log_sum_exp.begin(), alone.log_sum_exp.end(), logs));
      }
    }
  }
}

TEST_F(ClusteredCudaTest, SharedHeadsGetTheBytesOfRepeatedKeysAndValues) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(11, 5, seed_)) {
      SCOPED_TRACE(NameOf(dtype));
      const Spec each = MakeSpec(dtype, kernel, 4, 32, 32);
      for (const bool in_keys : {false, true}) {
        Spec spec = WithKvHeads(each, 2);
        spec.value_is_key_prefix = in_keys;
        OwnedProblem shared(spec, {70, 1}, {90, 3});
        OwnedProblem repeated(each, {70, 1}, {90, 3});
        shared.Randomize(random_);
        RepeatHeads(shared, repeated);
        const ClusteredRun first(shared);
        const ClusteredRun second(repeated);
        EXPECT_EQ(shared.output.bytes(), repeated.output.bytes());
      }
    }
  }
}

TEST_F(ClusteredCudaTest, TheOrderOfThreadsDoesNotShow) {
  for (const DType dtype : kFloatTypes) {
    OwnedProblem problem(MakeSpec(dtype, ImprovedClusters(8, 12, seed_), 1, 32, 32), {100}, {1300});
    problem.Randomize(random_);
    const ClusteredRun first(problem);
    const std::vector<std::byte> bytes = OutputOf(problem, 0);
    for (const uint64_t schedule : {uint64_t{0}, uint64_t{seed_} + 1}) {
      cuda_emulator::SetSchedule(schedule);
      const ClusteredRun again(problem);
      EXPECT_EQ(OutputOf(problem, 0), bytes) << NameOf(dtype) << ", schedule " << schedule;
    }
  }
}

TEST_F(ClusteredCudaTest, LabelsAreTheTwinsForAnyBitsAndIterations) {
  for (const int iterations : {1, 4}) {
    Clustered kernel = PlainClusters(UpTo(70), seed_);
    kernel.iterations = iterations;
    kernel.bits = UpTo(64);
    OwnedProblem problem(MakeSpec(DType::kFloat32, kernel, 1, 8, 4), {2100, 40}, {2, 2});
    problem.Randomize(random_);
    const ClusteredRun run(problem);
    for (int64_t s = 0; s < 2; ++s) {
      EXPECT_EQ(run.Labels(s, 0), ClusterCodes(run.Codes(s, 0), kernel).labels);
    }
  }
}

}  // namespace
}  // namespace castor::attention
