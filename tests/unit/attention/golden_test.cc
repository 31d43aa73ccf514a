// Cases that tests/golden/attention/*.py computed from the definitions, without any of our code.

#include "tests/support/attention/golden.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/attention/variants.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/twins/cast.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

using nlohmann::json;

class GoldenTest : public testing::TestWithParam<nlohmann::json> {
 protected:
  std::unique_ptr<OwnedProblem> Problem(DType dtype) {
    const nlohmann::json& golden = GetParam();
    Spec spec = MakeSpec(dtype, Vanilla{golden["causal"]}, golden["heads"], golden["head_dim"],
                         golden["value_dim"]);
    spec.softmax_scale = golden["scale"];
    spec.kv_heads = golden.value("kv_heads", spec.heads);
    if (golden.contains("window")) {
      spec.window = {.left = golden["window"][0], .right = golden["window"][1]};
      spec.window.always_visible = golden.value("always_visible", 0);
    }
    spec.softcap = golden.value("softcap", 0.0);
    slopes_ = golden.value("alibi_slopes", std::vector<float>());
    if (!slopes_.empty()) spec.bias.slopes = slopes_.data();
    spec.log_sum_exp = golden.contains("log_sum_exp");
    auto problem =
        std::make_unique<OwnedProblem>(spec, golden["query_lengths"].get<std::vector<int32_t>>(),
                                       golden["key_lengths"].get<std::vector<int32_t>>());
    FillFromUnits(golden["query"], problem->query);
    FillFromUnits(golden["key"], problem->key);
    FillFromUnits(golden["value"], problem->value);
    return problem;
  }

  static std::vector<double> Expected() { return GetParam()["output"]; }
  static std::vector<double> ExpectedLogs() {
    return GetParam().value("log_sum_exp", std::vector<double>());
  }
  // The peers compute in float32.
  static bool exact() { return !GetParam().contains("kv_heads"); }

 private:
  std::vector<float> slopes_;
};

TEST_P(GoldenTest, TheReferenceAgrees) {
  const auto problem = Problem(DType::kFloat32);
  std::vector<double> logs;
  const std::vector<double> output = VanillaReference(problem->spec, problem->view, &logs);
  const std::vector<double> expected = Expected();
  ASSERT_EQ(output.size(), expected.size());
  const double tolerance = exact() ? 1e-13 : 2e-6;
  for (size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], expected[i], tolerance) << i;
  const std::vector<double> expected_logs = ExpectedLogs();
  for (size_t i = 0; i < expected_logs.size(); ++i) {
    EXPECT_NEAR(logs[i], expected_logs[i], tolerance) << i;
  }
}

TEST_P(GoldenTest, EveryRowAgreesInEveryDtype) {
  for (const DType dtype : kFloatTypes) {
    const auto problem = Problem(dtype);
    for (const Variant& row : CpuVariants()) {
      if (row.kernel != KernelName::kVanilla || !row.supports(problem->spec)) continue;
      ASSERT_TRUE(row.run(problem->spec, {&problem->view, 1}, RunToEnd()).ok());
      EXPECT_LE(RelativeError(*problem, Expected()), Tolerance(dtype))
          << row.backend << " " << NameOf(dtype);
      const std::vector<double> logs = ExpectedLogs();
      for (size_t i = 0; i < logs.size(); ++i) {
        EXPECT_NEAR(problem->log_sum_exp[i], logs[i], Tolerance(dtype)) << row.backend;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vanilla, GoldenTest, testing::ValuesIn(GoldenCases("vanilla.json")),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Peers, GoldenTest, testing::ValuesIn(GoldenCases("peers.json")),
                         NameOfCase);

// The twins of the approximate kernels against cases that tests/golden/attention/approximate.py
// computed from the definitions, without any of our code.

template <typename K>
K GoldenClustering(const json& parameters) {
  K kernel;
  kernel.clusters = parameters["clusters"];
  kernel.iterations = parameters["iterations"];
  kernel.bits = parameters["bits"];
  kernel.hash_bias = parameters["hash_bias"];
  kernel.seed = parameters["seed"];
  return kernel;
}

Kernel KernelOf(const json& golden) {
  const json& parameters = golden["parameters"];
  if (golden["kernel"] == "clustered") return GoldenClustering<Clustered>(parameters);
  if (golden["kernel"] == "improved_clustered") {
    auto kernel = GoldenClustering<ImprovedClustered>(parameters);
    kernel.topk = parameters["topk"];
    return kernel;
  }
  Cast kernel;
  kernel.cluster_size = parameters["cluster_size"];
  if (parameters["clustering"] != "TOP_K") {
    kernel.clustering = Cast::Clustering::kSingleAssignmentTopK;
  }
  if (parameters["attention_function"] == "LAPLACE") {
    kernel.attention_function = Cast::AttentionFunction::kLaplace;
  }
  if (parameters["gate_temperature"] == "NONE") {
    kernel.gate_temperature = Cast::GateTemperature::kNone;
  }
  if (parameters["head_clustering"] == "PER_HEAD") {
    kernel.head_clustering = Cast::HeadClustering::kPerHead;
  }
  return kernel;
}

// A case that owns its memory.
struct GoldenProblem {
  explicit GoldenProblem(const json& golden)
      : problem(SpecOf(golden), golden["lengths"], golden["lengths"]),
        surrogates(DType::kFloat32,
                   problem.spec.surrogates * problem.spec.heads * problem.spec.head_dim) {
    FillFromUnits(golden["query"], problem.query);
    FillFromUnits(golden["key"], problem.key);
    FillFromUnits(golden["value"], problem.value);
    if (!is_cast()) return;
    FillFromUnits(golden["surrogates"], surrogates);
    for (int unit : golden["gate"].get<std::vector<int>>()) {
      gate.push_back(static_cast<float>(unit) / 64);
    }
    problem.view.cast.surrogates = surrogates.data();
    problem.view.cast.gate = gate.data();
  }

  static Spec SpecOf(const json& golden) {
    Spec spec = MakeSpec(DType::kFloat32, KernelOf(golden), golden["heads"], golden["head_dim"],
                         golden["value_dim"]);
    if (std::holds_alternative<Cast>(spec.kernel)) {
      spec.surrogates =
          static_cast<int64_t>(golden["surrogates"].size()) / (spec.heads * spec.head_dim);
    }
    return spec;
  }

  bool is_cast() const { return std::holds_alternative<Cast>(problem.spec.kernel); }

  OwnedProblem problem;
  Elements surrogates;
  std::vector<float> gate;
};

class GoldenApproximateTest : public testing::TestWithParam<json> {};

TEST_P(GoldenApproximateTest, TheReferenceAgrees) {
  const json& golden = GetParam();
  const GoldenProblem made(golden);
  const OwnedProblem& problem = made.problem;
  const std::vector<double> output = made.is_cast()
                                         ? CastReference(problem.spec, problem.view)
                                         : ClusteredReference(problem.spec, problem.view);
  const std::vector<double> expected = golden["output"];
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], expected[i], 1e-12);
  if (made.is_cast()) return;
  EXPECT_EQ(ClusterLabels(problem.spec, problem.view),
            golden["labels"].get<std::vector<int32_t>>());
}

TEST_P(GoldenApproximateTest, EveryRowOfTheProcessorsTableAgrees) {
  GoldenProblem made(GetParam());
  OwnedProblem& problem = made.problem;
  for (const Variant& variant : CpuVariants()) {
    if (variant.kernel != NameOf(problem.spec.kernel) || !variant.supports(problem.spec)) continue;
    SCOPED_TRACE(variant.backend);
    problem.output.Clear();
    ASSERT_TRUE(variant.run(problem.spec, {&problem.view, 1}, RunToEnd()).ok());
    EXPECT_LE(RelativeError(problem, GetParam()["output"]), Tolerance(DType::kFloat32));
  }
}

INSTANTIATE_TEST_SUITE_P(Approximate, GoldenApproximateTest,
                         testing::ValuesIn(GoldenCases("approximate.json")), NameOfCase);

}  // namespace
}  // namespace castor::attention
