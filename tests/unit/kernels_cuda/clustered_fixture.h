// What the tests of clustered attention's CUDA kernels share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/clustered_reference.h"
#include "engine/attention/vanilla_reference.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/kernels_cuda/clustered_run.h"

namespace castor::attention {

inline Spec MakeSpec(Kernel kernel, DType dtype, int64_t heads, int64_t head_dim,
                     int64_t value_dim) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = heads;
  spec.head_dim = head_dim;
  spec.value_dim = value_dim;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  spec.kernel = std::move(kernel);
  return spec;
}

inline Clustered Plain(int32_t clusters, uint64_t seed = 0) {
  Clustered kernel;
  kernel.clusters = clusters;
  kernel.seed = seed;
  return kernel;
}

inline ImprovedClustered Improved(int32_t clusters, int32_t topk, uint64_t seed = 0) {
  ImprovedClustered kernel;
  kernel.clusters = clusters;
  kernel.topk = topk;
  kernel.seed = seed;
  return kernel;
}

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// What a run leaves, and with which implementation.
struct Way {
  std::string name;
  DType dtype;
  CudaPath path;
};

inline std::vector<Way> Ways() {
  return {{"generic fp32", DType::kFloat32, {}},
          {"generic bf16", DType::kBFloat16, {}},
          {"tensor cores fp16", DType::kFloat16, {.tensor_cores = true}},
          {"tensor cores bf16", DType::kBFloat16, {.tensor_cores = true}}};
}

inline std::vector<Kernel> BothKernels(int32_t clusters, int32_t topk, uint64_t seed) {
  return {Plain(clusters, seed), Improved(clusters, topk, seed)};
}

// Copies sequence `from` of one problem to sequence `to` of another; no gaps in either.
inline void CopySequence(const OwnedProblem& source, int64_t from, OwnedProblem& target,
                         int64_t to) {
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

inline std::vector<std::byte> OutputOf(const OwnedProblem& problem, int64_t sequence) {
  const int64_t row = problem.spec.heads * problem.spec.value_dim *
                      static_cast<int64_t>(SizeOf(problem.spec.dtype));
  const std::byte* const data = problem.output.data();
  return {data + problem.cu_seqlens_q[sequence] * row,
          data + problem.cu_seqlens_q[sequence + 1] * row};
}

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

  // Codes but for bits within rounding of their plane, labels and order for these codes bit by bit,
  // and the rows. The latter only where float64 finds the same labels, which is nearly always: a
  // query may lie on a plane.
  void ExpectRight(OwnedProblem& problem, const CudaPath& path) {
    std::fill_n(problem.output.data(), problem.output.bytes().size(), std::byte{0xff});
    const ClusteredRun run(problem, path);
    const std::vector<int32_t> labels = ClusterLabels(problem.spec, problem.view);
    bool same = true;
    for (int64_t s = 0; s < problem.view.sequences(); ++s) {
      for (int64_t h = 0; h < problem.spec.heads; ++h) {
        const std::vector<int32_t> mine = run.Labels(s, h);
        ASSERT_EQ(mine, ClusterCodes(run.Codes(s, h), ClusteringOf(problem.spec)).labels);
        for (size_t i = 0; i < mine.size(); ++i) {
          const int64_t token = problem.cu_seqlens_q[s] + static_cast<int64_t>(i);
          same = same && mine[i] == labels[token * problem.spec.heads + h];
        }
        ExpectSorted(run, s, h, mine);
        ExpectCodes(problem, run, s, h);
      }
    }
    ++cases_;
    if (!same) return;
    ++compared_;
    EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)),
              Tolerance(problem.spec.dtype));
  }

  void ExpectCodes(const OwnedProblem& problem, const ClusteredRun& run, int64_t s, int64_t h) {
    const int64_t dim = problem.spec.head_dim;
    const HashPlanes planes = MakeHashPlanes(ClusteringOf(problem.spec), dim);
    const std::vector<uint64_t> codes = run.Codes(s, h);
    for (size_t i = 0; i < codes.size(); ++i) {
      const int64_t token = problem.cu_seqlens_q[s] + static_cast<int64_t>(i);
      for (int t = 0; t < planes.bits; ++t) {
        double product = 0;
        double size = std::abs(planes.biases[t]);
        for (int64_t e = 0; e < dim; ++e) {
          const double term = problem.query.Get(token * problem.view.query_stride + h * dim + e) *
                              planes.normals[t * dim + e];
          product += term;
          size += std::abs(term);
        }
        const double margin = product - planes.biases[t];
        if (std::abs(margin) > 1e-5 * size) {
          ASSERT_EQ(codes[i] >> t & 1, margin > 0 ? 1u : 0u) << "bit " << t << " of query " << i;
        }
      }
    }
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
  int cases_ = 0;
  int compared_ = 0;  // of them, with float64's rows
};

}  // namespace castor::attention
