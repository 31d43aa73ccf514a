// Clustered and improved clustered attention's CUDA kernels, on the emulator, against the twins.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "engine/attention/vanilla_reference.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/kernels_cuda/clustered_run.h"

namespace castor::attention {
namespace {

Spec MakeSpec(Kernel kernel, DType dtype, int64_t heads, int64_t head_dim, int64_t value_dim) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = heads;
  spec.head_dim = head_dim;
  spec.value_dim = value_dim;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  spec.kernel = std::move(kernel);
  return spec;
}

Clustered Plain(int32_t clusters, uint64_t seed = 0) {
  Clustered kernel;
  kernel.clusters = clusters;
  kernel.seed = seed;
  return kernel;
}

ImprovedClustered Improved(int32_t clusters, int32_t topk, uint64_t seed = 0) {
  ImprovedClustered kernel;
  kernel.clusters = clusters;
  kernel.topk = topk;
  kernel.seed = seed;
  return kernel;
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class ClusteredCudaTest : public testing::Test {
 protected:
  ClusteredCudaTest() : seed_(FreshSeed()), random_(seed_), trace_(__FILE__, __LINE__, seed_) {
    cuda_emulator::SetSchedule(seed_);
  }

  std::vector<int32_t> Lengths(int sequences, int32_t longest) {
    std::vector<int32_t> lengths(sequences);
    for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random_() % longest);
    return lengths;
  }

  // Queries drawn around a few centres, so that clusters and top keys are clear of rounding.
  void Structure(OwnedProblem& problem, int centres) {
    problem.Randomize(random_, 0.1, 1, 1);
    const int64_t dim = problem.spec.head_dim;
    std::normal_distribution<double> normal;
    std::vector<double> centre(centres * dim);
    for (double& x : centre) x = 1.5 * normal(random_);
    for (int64_t i = 0; i < problem.view.query_tokens(); ++i) {
      for (int64_t h = 0; h < problem.spec.heads; ++h) {
        const int64_t c = static_cast<int64_t>(random_() % centres);
        const int64_t at = i * problem.view.query_stride + h * dim;
        for (int64_t e = 0; e < dim; ++e) {
          problem.query.Set(at + e, problem.query.Get(at + e) + centre[c * dim + e]);
        }
      }
    }
  }

  // The error of the row against the twin, given the labels that the kernels found: codes near a
  // plane may differ from the twin's float64 ones, and what follows from the labels must not.
  void ExpectRight(OwnedProblem& problem, const CudaPath& path) {
    std::fill_n(problem.output.data(), problem.output.bytes().size(), std::byte{0xff});
    const ClusteredRun run(problem, path);
    const Clustered& parameters = ClusteringOf(problem.spec);
    const std::vector<int32_t> labels = ClusterLabels(problem.spec, problem.view);
    int64_t same = 0;
    for (int64_t s = 0; s < problem.view.sequences(); ++s) {
      for (int64_t h = 0; h < problem.spec.heads; ++h) {
        const std::vector<int32_t> mine = run.Labels(s, h);
        ASSERT_EQ(mine, ClusterCodes(run.Codes(s, h), parameters).labels)
            << "labels follow from codes bit by bit";
        for (size_t i = 0; i < mine.size(); ++i) {
          same +=
              mine[i] ==
              labels[(problem.cu_seqlens_q[s] + static_cast<int64_t>(i)) * problem.spec.heads + h];
        }
        ExpectSorted(run, s, h, mine);
      }
    }
    ASSERT_EQ(same, static_cast<int64_t>(labels.size())) << "structured queries leave no doubt";
    const double error = RelativeError(problem, ClusteredReference(problem.spec, problem.view));
    EXPECT_LE(error, Tolerance(problem.spec.dtype));
    worst_ = std::max(worst_, error / Tolerance(problem.spec.dtype));
  }

  void ExpectSorted(const ClusteredRun& run, int64_t s, int64_t h,
                    const std::vector<int32_t>& labels) {
    std::vector<int32_t> expected(labels.size());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int32_t>(i);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](int32_t a, int32_t b) { return labels[a] < labels[b]; });
    EXPECT_EQ(run.Order(s, h), expected);
  }

  const uint32_t seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  double worst_ = 0;
};

TEST_F(ClusteredCudaTest, GenericMatchesTheTwin) {
  const std::pair<int64_t, int64_t> dims[] = {{64, 64}, {7, 5}, {40, 72}, {1, 1}, {33, 140}};
  for (const DType dtype : kDTypes) {
    for (const auto& [head_dim, value_dim] : dims) {
      for (const Kernel& kernel : {Kernel(Plain(9, seed_)), Kernel(Improved(9, 6, seed_))}) {
        SCOPED_TRACE(std::string(NameOf(dtype)) + " d=" + std::to_string(head_dim));
        OwnedProblem problem(MakeSpec(kernel, dtype, 2, head_dim, value_dim), Lengths(3, 150),
                             Lengths(3, 150), {3, 1, 2, 5});
        if (head_dim < 7) {
          problem.Randomize(random_);
          const ClusteredRun run(problem, {});
        } else {
          Structure(problem, 9);
          ExpectRight(problem, {});
        }
      }
    }
  }
  RecordProperty("worst_error_over_tolerance", std::to_string(worst_));
}

TEST_F(ClusteredCudaTest, TensorCoresMatchTheTwin) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t dim : {32, 64, 80, 96, 128}) {
      for (const Kernel& kernel : {Kernel(Plain(20, seed_)), Kernel(Improved(20, 32, seed_))}) {
        SCOPED_TRACE(std::string(NameOf(dtype)) + " d=" + std::to_string(dim));
        OwnedProblem problem(MakeSpec(kernel, dtype, 2, dim, dim), Lengths(2, 200), Lengths(2, 300),
                             {8, 16, 8, 2});
        Structure(problem, 12);
        ExpectRight(problem, {.tensor_cores = true});
      }
    }
  }
  RecordProperty("worst_error_over_tolerance", std::to_string(worst_));
}

// What a run leaves, and with which implementation.
struct Way {
  std::string name;
  DType dtype;
  CudaPath path;
};

std::vector<Way> Ways() {
  return {{"generic fp32", DType::kFloat32, {}},
          {"generic bf16", DType::kBFloat16, {}},
          {"tensor cores fp16", DType::kFloat16, {.tensor_cores = true}},
          {"tensor cores bf16", DType::kBFloat16, {.tensor_cores = true}}};
}

std::vector<Kernel> BothKernels(int32_t clusters, int32_t topk, uint64_t seed) {
  return {Plain(clusters, seed), Improved(clusters, topk, seed)};
}

// Copies sequence `from` of one problem to sequence `to` of another; no gaps in either.
void CopySequence(const OwnedProblem& source, int64_t from, OwnedProblem& target, int64_t to) {
  const auto copy = [&](const Elements& a, Elements& b, const std::vector<int32_t>& cu_a,
                        const std::vector<int32_t>& cu_b, int64_t row) {
    const size_t bytes = row * SizeOf(source.spec.dtype);
    std::copy_n(a.data() + cu_a[from] * bytes, (cu_a[from + 1] - cu_a[from]) * bytes,
                b.data() + cu_b[to] * bytes);
  };
  const Spec& spec = source.spec;
  copy(source.query, target.query, source.cu_seqlens_q, target.cu_seqlens_q,
       spec.heads * spec.head_dim);
  copy(source.key, target.key, source.cu_seqlens_k, target.cu_seqlens_k,
       spec.heads * spec.head_dim);
  copy(source.value, target.value, source.cu_seqlens_k, target.cu_seqlens_k,
       spec.heads * spec.value_dim);
}

std::vector<std::byte> OutputOf(const OwnedProblem& problem, int64_t sequence) {
  const int64_t row = problem.spec.heads * problem.spec.value_dim *
                      static_cast<int64_t>(SizeOf(problem.spec.dtype));
  const std::byte* const data = problem.output.data();
  return {data + problem.cu_seqlens_q[sequence] * row,
          data + problem.cu_seqlens_q[sequence + 1] * row};
}

TEST_F(ClusteredCudaTest, AloneIsTheSameAsInABatch) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(11, 5, seed_)) {
      SCOPED_TRACE(way.name);
      const Spec spec = MakeSpec(kernel, way.dtype, 2, 32, 32);
      OwnedProblem batch(spec, {70, 1, 130, 5}, {90, 3, 300, 1});
      batch.Randomize(random_);
      const ClusteredRun together(batch, way.path);
      for (int64_t s = 0; s < batch.view.sequences(); ++s) {
        OwnedProblem alone(spec, {batch.cu_seqlens_q[s + 1] - batch.cu_seqlens_q[s]},
                           {batch.cu_seqlens_k[s + 1] - batch.cu_seqlens_k[s]});
        CopySequence(batch, s, alone, 0);
        const ClusteredRun by_itself(alone, way.path);
        EXPECT_EQ(OutputOf(alone, 0), OutputOf(batch, s)) << "sequence " << s;
      }
    }
  }
}

TEST_F(ClusteredCudaTest, TheOrderOfThreadsDoesNotShow) {
  for (const Way& way : Ways()) {
    OwnedProblem problem(MakeSpec(Improved(8, 12, seed_), way.dtype, 1, 32, 32), {100}, {1300});
    problem.Randomize(random_);
    const ClusteredRun first(problem, way.path);
    const std::vector<std::byte> bytes = OutputOf(problem, 0);
    for (const uint64_t schedule : {uint64_t{0}, uint64_t{seed_} + 1}) {
      cuda_emulator::SetSchedule(schedule);
      const ClusteredRun again(problem, way.path);
      EXPECT_EQ(OutputOf(problem, 0), bytes) << way.name << ", schedule " << schedule;
    }
  }
}

TEST_F(ClusteredCudaTest, ManyOrFewBlocksFindTheSameLabels) {
  for (const int iterations : {1, 4}) {
    Clustered kernel = Plain(1 + static_cast<int32_t>(random_() % 70), seed_);
    kernel.iterations = iterations;
    kernel.bits = 1 + static_cast<int32_t>(random_() % 64);
    OwnedProblem problem(MakeSpec(kernel, DType::kFloat32, 1, 8, 4), {2100, 40}, {2, 2});
    problem.Randomize(random_);
    const ClusteredRun with(problem, {.block_clusters = true});
    const ClusteredRun without(problem, {.block_clusters = false});
    EXPECT_EQ(with.plan().lloyd_blocks, 8);
    EXPECT_EQ(without.plan().lloyd_blocks, 1);
    for (int64_t s = 0; s < 2; ++s) {
      const std::vector<int32_t> expected = ClusterCodes(with.Codes(s, 0), kernel).labels;
      EXPECT_EQ(with.Labels(s, 0), expected);
      EXPECT_EQ(without.Labels(s, 0), expected);
    }
  }
}

TEST_F(ClusteredCudaTest, EqualCodesShareTheFirstCluster) {
  OwnedProblem problem(MakeSpec(Plain(20, seed_), DType::kFloat32, 1, 8, 4), {90}, {3});
  problem.Randomize(random_);
  for (int64_t i = 8; i < problem.query.size(); ++i) {
    problem.query.Set(i, problem.query.Get(i % 8));
  }
  EXPECT_EQ(ClusteredRun(problem, {}).Labels(0, 0), std::vector<int32_t>(90, 0));
}

TEST_F(ClusteredCudaTest, MoreClustersThanSharedMemoryHolds) {
  for (const Kernel& kernel : {Kernel(Plain(1100, seed_)), Kernel(Improved(1100, 3, seed_))}) {
    OwnedProblem problem(MakeSpec(kernel, DType::kFloat32, 1, 16, 8), {1300, 30}, {40, 40});
    problem.Randomize(random_);
    const ClusteredRun run(problem, {});
    EXPECT_EQ(run.plan().lloyd_blocks, 0);
    for (int64_t s = 0; s < 2; ++s) {
      const std::vector<int32_t> labels = run.Labels(s, 0);
      EXPECT_EQ(labels, ClusterCodes(run.Codes(s, 0), ClusteringOf(problem.spec)).labels);
      ExpectSorted(run, s, 0, labels);
    }
  }
}

TEST_F(ClusteredCudaTest, AClusterPerQueryIsVanilla) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(1000, 4, seed_)) {
      OwnedProblem problem(MakeSpec(kernel, way.dtype, 2, 32, 32), {40, 1, 9}, {30, 3, 9});
      problem.Randomize(random_);
      const ClusteredRun run(problem, way.path);
      Spec vanilla = problem.spec;
      vanilla.kernel = Vanilla{};
      EXPECT_LE(RelativeError(problem, VanillaReference(vanilla, problem.view)),
                Tolerance(way.dtype))
          << way.name;
    }
  }
}

TEST_F(ClusteredCudaTest, TopKeysBeyondAllKeysIsVanilla) {
  for (const Way& way : Ways()) {
    for (const int32_t topk : {70, 1024}) {
      OwnedProblem problem(MakeSpec(Improved(3, topk, seed_), way.dtype, 2, 32, 32), {40, 5},
                           {70, 2});
      problem.Randomize(random_);
      const ClusteredRun run(problem, way.path);
      Spec vanilla = problem.spec;
      vanilla.kernel = Vanilla{};
      EXPECT_LE(RelativeError(problem, VanillaReference(vanilla, problem.view)),
                Tolerance(way.dtype))
          << way.name;
    }
  }
}

TEST_F(ClusteredCudaTest, OneQueryAndOneKey) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(100, 32, seed_)) {
      OwnedProblem problem(MakeSpec(kernel, way.dtype, 3, 64, 64), {1}, {1});
      problem.Randomize(random_);
      const ClusteredRun run(problem, way.path);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        EXPECT_EQ(problem.output.Get(i), problem.value.Get(i)) << way.name;
      }
    }
  }
}

// Scores of small integers are exact everywhere, so that ties are ties, and there are many.
TEST_F(ClusteredCudaTest, TiesAmongTopKeysGoToTheLowest) {
  constexpr int64_t kDim = 32;
  for (const Way& way : Ways()) {
    for (const int32_t keys : {50, 700, 2100}) {
      const int32_t topk = 1 + static_cast<int32_t>(random_() % 40);
      SCOPED_TRACE(way.name + ", " + std::to_string(keys) + " keys, k=" + std::to_string(topk));
      OwnedProblem problem(MakeSpec(Improved(1, topk, seed_), way.dtype, 1, kDim, kDim), {3},
                           {keys});
      problem.Randomize(random_);
      for (int64_t i = 0; i < problem.query.size(); ++i) {
        problem.query.Set(i, i % kDim < 4 ? 1 + i % kDim : 0);  // all the same
      }
      for (int64_t i = 0; i < problem.key.size(); ++i) {
        problem.key.Set(i, static_cast<int>(random_() % 3) - 1);
      }
      const ClusteredRun run(problem, way.path);
      std::vector<int32_t> expected(keys);
      std::vector<double> scores(keys);
      for (int32_t j = 0; j < keys; ++j) {
        expected[j] = j;
        for (int64_t e = 0; e < 4; ++e) {
          scores[j] += problem.query.Get(e) * problem.key.Get(j * kDim + e);
        }
      }
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
      expected.resize(std::min(topk, keys));
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(run.workspace().top_counts[0], static_cast<int32_t>(expected.size()));
      EXPECT_EQ(std::vector<int32_t>(run.workspace().top_keys,
                                     run.workspace().top_keys + expected.size()),
                expected);
    }
  }
}

TEST_F(ClusteredCudaTest, EqualKeysAreAllTied) {
  for (const Way& way : Ways()) {
    constexpr int32_t kTop = 9;
    OwnedProblem problem(MakeSpec(Improved(2, kTop, seed_), way.dtype, 1, 32, 32), {20}, {1700});
    problem.Randomize(random_);
    for (int64_t i = 32; i < problem.key.size(); ++i) {
      problem.key.Set(i, problem.key.Get(i % 32));
    }
    const ClusteredRun run(problem, way.path);
    for (int32_t j = 0; j < kTop; ++j) EXPECT_EQ(run.workspace().top_keys[j], j) << way.name;
    EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)),
              4 * Tolerance(way.dtype))
        << "a mean of 1700 values, which nearly cancel";
  }
}

TEST_F(ClusteredCudaTest, ScoresThatRiseWithTheKeyFillEveryList) {
  // Every key beats all before it, so lists are cut down again and again.
  for (const Way& way : Ways()) {
    constexpr int32_t kKeys = 1500;
    constexpr int32_t kTop = 70;
    OwnedProblem problem(MakeSpec(Improved(1, kTop, seed_), way.dtype, 1, 32, 32), {2}, {kKeys});
    problem.Randomize(random_);
    for (int64_t i = 0; i < problem.query.size(); ++i) problem.query.Set(i, i % 32 < 2);
    for (int64_t j = 0; j < kKeys; ++j) {
      // Both exact in every type.
      problem.key.Set(j * 32, static_cast<double>(j / 100 * 100) / 64);
      problem.key.Set(j * 32 + 1, static_cast<double>(j % 100) / 64);
    }
    const ClusteredRun run(problem, way.path);
    for (int32_t j = 0; j < kTop; ++j) {
      EXPECT_EQ(run.workspace().top_keys[j], kKeys - kTop + j) << way.name;
    }
  }
}

TEST_F(ClusteredCudaTest, HugeScoresStayFinite) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(4, 6, seed_)) {
      OwnedProblem problem(MakeSpec(kernel, way.dtype, 1, 32, 32), {50}, {80});
      problem.Randomize(random_, 100, 100);
      const ClusteredRun run(problem, way.path);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_TRUE(std::isfinite(problem.output.Get(i))) << way.name;
      }
    }
  }
}

TEST_F(ClusteredCudaTest, NaNSpoilsItsSequenceAlone) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(6, 40, seed_)) {
      const Spec spec = MakeSpec(kernel, way.dtype, 2, 32, 32);
      OwnedProblem clean(spec, {60, 50, 40}, {60, 50, 40});
      clean.Randomize(random_);
      OwnedProblem spoilt(spec, {60, 50, 40}, {60, 50, 40});
      for (int64_t s = 0; s < 3; ++s) CopySequence(clean, s, spoilt, s);
      const int64_t row = spec.heads * spec.head_dim;
      for (Elements* const tensor : {&spoilt.query, &spoilt.key, &spoilt.value}) {
        tensor->Set(60 * row + static_cast<int64_t>(random_() % (50 * row)), NAN);
        tensor->Set(60 * row + static_cast<int64_t>(random_() % (50 * row)), INFINITY);
      }
      const ClusteredRun first(clean, way.path);
      const ClusteredRun second(spoilt, way.path);
      for (const int64_t s : {0, 2}) EXPECT_EQ(OutputOf(clean, s), OutputOf(spoilt, s)) << way.name;
    }
  }
}

TEST_F(ClusteredCudaTest, WeightsOfEveryRowSumToOne) {
  for (const Way& way : Ways()) {
    for (const Kernel& kernel : BothKernels(7, 33, seed_)) {
      OwnedProblem problem(MakeSpec(kernel, way.dtype, 1, 32, 32), {70}, {600});
      problem.Randomize(random_, 2, 1);
      for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
      const ClusteredRun run(problem, way.path);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_NEAR(problem.output.Get(i), 1, Tolerance(way.dtype)) << way.name;
      }
    }
  }
}

// A plan's pieces are those of its sequences, one after another.
TEST_F(ClusteredCudaTest, APlanOfABatchIsThePlansOfItsSequences) {
  using kernels::cuda::ClusteredPlan;
  kernels::cuda::ClusteredShape shape;
  shape.heads = 3;
  shape.head_dim = shape.value_dim = 64;
  shape.clusters = 1 + static_cast<int32_t>(random_() % 400);
  shape.topk = static_cast<int32_t>(random_() % 100);
  std::vector<int32_t> cu_q = {0};
  std::vector<int32_t> cu_k = {0};
  for (int s = 0; s < 20; ++s) {
    cu_q.push_back(cu_q.back() + static_cast<int32_t>(random_() % 20000));
    cu_k.push_back(cu_k.back() + 1 + static_cast<int32_t>(random_() % 100000));
  }
  for (const bool tensor_cores : {false, true}) {
    const ClusteredPlan all = PlanClustered(shape, cu_q, cu_k, {tensor_cores, true});
    ASSERT_EQ(all.sequences, 20);
    for (int s = 0; s < 20; ++s) {
      const int32_t q[] = {0, cu_q[s + 1] - cu_q[s]};
      const int32_t k[] = {0, cu_k[s + 1] - cu_k[s]};
      const ClusteredPlan one = PlanClustered(shape, q, k, {tensor_cores, true});
      for (int a = 0; a < ClusteredPlan::kArrays; ++a) {
        EXPECT_EQ(all.offsets[a * 21 + s + 1] - all.offsets[a * 21 + s], one.offsets[a * 2 + 1]);
      }
    }
  }
}

}  // namespace
}  // namespace castor::attention
