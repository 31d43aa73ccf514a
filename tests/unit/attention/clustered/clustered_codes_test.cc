// The integer stages of clustered attention on the CPU: for the same codes, every instruction set
// must give exactly the twin's labels, centroids and number of updates.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine/attention/clustered/clustering.h"
#include "engine/attention/parallel.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"

namespace castor::attention {
namespace {

using kernels::ClusterKernel;

class ClusteredCodesTest : public testing::TestWithParam<const ClusterKernel*>, protected Seeded {
 protected:
  void SetUp() override {
    if (!kernel().runs_here()) GTEST_SKIP() << "this processor cannot run " << kernel().backend;
  }

  static const ClusterKernel& kernel() { return *GetParam(); }

  uint64_t RandomCode(int bits) { return ((uint64_t{random_()} << 32) | random_()) >> (64 - bits); }

  std::vector<uint64_t> RandomCodes(int64_t count, int bits) {
    std::vector<uint64_t> codes;
    for (int64_t i = 0; i < count; ++i) codes.push_back(RandomCode(bits));
    return codes;
  }

  static void Run(CodeClusterer& clusterer, const std::vector<uint64_t>& codes, bool threads) {
    std::vector<int32_t> order(codes.size()), begin(codes.size() + 1);
    clusterer.Start(codes, order.data(), begin.data());
    if (threads) {
      ASSERT_TRUE(RunPasses(clusterer, RunToEnd()).ok());
      return;
    }
    for (int64_t at = 0; StepThrough(clusterer, &at);) {
    }
  }

  void ExpectTwins(const std::vector<uint64_t>& codes, const Clustered& parameters) {
    const CodeClusters expected = ClusterCodes(codes, parameters);
    CodeClusterer clusterer(kernel(), parameters, static_cast<int64_t>(codes.size()));
    for (const bool threads : {false, true}) {
      Run(clusterer, codes, threads);
      ASSERT_EQ(clusterer.updates(), expected.updates);
      ASSERT_TRUE(std::ranges::equal(clusterer.labels(), expected.labels))
          << codes.size() << " codes of " << parameters.bits << " bits in " << parameters.clusters
          << " clusters";
      ASSERT_TRUE(std::ranges::equal(clusterer.centroids(), expected.centroids));
    }
  }
};

TEST_P(ClusteredCodesTest, RandomCodesGetTheTwinsLabels) {
  for (int round = 0; round < Scaled(200); ++round) {
    Clustered parameters = PlainClusters(UpTo(round % 8 == 0 ? 700 : 60), random_());
    parameters.bits = UpTo(64);
    parameters.iterations = UpTo(15);
    ExpectTwins(RandomCodes(UpTo(round % 10 == 0 ? 3000 : 300), parameters.bits), parameters);
  }
}

// Codes around centres, as from structured queries, with few distinct values: many ties.
TEST_P(ClusteredCodesTest, CodesAroundCentresGetTheTwinsLabels) {
  for (int round = 0; round < Scaled(100); ++round) {
    Clustered parameters = PlainClusters(UpTo(40), random_());
    parameters.bits = UpTo(64);
    const std::vector<uint64_t> centres = RandomCodes(UpTo(30), parameters.bits);
    std::vector<uint64_t> codes;
    for (int count = UpTo(1500); count > 0; --count) {
      uint64_t code = centres[random_() % centres.size()];
      for (int flips = UpTo(4) - 1; flips > 0; --flips) {
        code ^= uint64_t{1} << (random_() % parameters.bits);
      }
      codes.push_back(code);
    }
    ExpectTwins(codes, parameters);
  }
}

TEST_P(ClusteredCodesTest, AdversarialCodesGetTheTwinsLabels) {
  for (const int bits : {1, 2, 3, 15, 16, 39, 40, 63, 64}) {
    const uint64_t all = ~uint64_t{0} >> (64 - bits);
    for (const int clusters : {1, 2, 3, 65, 128, 129, 256, 1000}) {
      for (const int count : {1, 2, 65, 257, 511, 513}) {
        if (kSanitized && clusters > 129 && count > 257) continue;
        Clustered parameters = PlainClusters(clusters, random_());
        parameters.bits = bits;
        ExpectTwins(std::vector<uint64_t>(count, all), parameters);
        ExpectTwins(std::vector<uint64_t>(count, 0), parameters);
        std::vector<uint64_t> two;  // values that differ everywhere
        for (int i = 0; i < count; ++i) two.push_back(i % 3 == 0 ? all : 0);
        ExpectTwins(two, parameters);
        std::vector<uint64_t> one_bit;
        for (int i = 0; i < count; ++i) one_bit.push_back(uint64_t{1} << (i % bits));
        ExpectTwins(one_bit, parameters);
      }
    }
  }
}

TEST_P(ClusteredCodesTest, TheMostClustersGetTheTwinsLabels) {
  if (kSanitized) GTEST_SKIP() << "a lot of work for the twin";
  Clustered parameters = PlainClusters(65536, random_());
  parameters.iterations = 1;
  ExpectTwins(RandomCodes(5000, 63), parameters);
}

TEST_P(ClusteredCodesTest, HashCodesAreTheTwins) {
  for (int round = 0; round < Scaled(90); ++round) {
    const DType dtype = kFloatTypes[round % 3];
    Clustered parameters = PlainClusters(1, random_());
    parameters.bits = round % 4 == 0 ? 63 : UpTo(64);
    parameters.hash_bias = round % 2 == 0;
    OwnedProblem problem(MakeSpec(dtype, parameters, UpTo(3), UpTo(140), 1), {UpTo(150)}, {1},
                         {.query = UpTo(5)});
    problem.Randomize(random_);
    MakeHashMargins(problem, random_);
    const Spec& spec = problem.spec;
    const HashPlanes twin = MakeHashPlanes(parameters, spec.head_dim);
    const HashPlaneSet planes(kernel(), parameters, spec.head_dim);
    std::vector<float> scratch(kernel().hash_scratch_floats(spec.head_dim));
    const int64_t count = problem.view.query_tokens();
    std::vector<uint64_t> codes(count);
    const ReferenceTensors in(spec, problem.view);
    for (int64_t head = 0; head < spec.heads; ++head) {
      kernel().hash(planes.planes(),
                    std::array{kernels::Element::kFloat32, kernels::Element::kFloat16,
                               kernels::Element::kBFloat16}[round % 3],
                    problem.query.data() + head * spec.head_dim * SizeOf(dtype),
                    problem.view.query_stride, count, codes.data(), scratch.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(codes[i], HashCode(twin, in.query(i, head)))
            << NameOf(dtype) << " dim " << spec.head_dim << " bits " << parameters.bits;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ClusteredCodesTest, testing::ValuesIn(kernels::kClusterKernels),
                         [](const auto& info) {
                           std::string name(info.param->backend);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention
