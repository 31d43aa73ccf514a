// The twins of the approximate kernels against cases that tests/golden/attention/approximate.py
// computed from the definitions, without any of our code.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/attention/cast_reference.h"
#include "engine/attention/clustered_reference.h"
#include "tests/unit/attention/random_problem.h"

namespace castor::attention {
namespace {

using nlohmann::json;

std::vector<json> Cases() {
  std::ifstream stream(CASTOR_GOLDEN_DIR "/attention/approximate.json");
  return json::parse(stream).get<std::vector<json>>();
}

template <typename K>
K ClusteringOf(const json& parameters) {
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
  if (golden["kernel"] == "clustered") return ClusteringOf<Clustered>(parameters);
  if (golden["kernel"] == "improved_clustered") {
    auto kernel = ClusteringOf<ImprovedClustered>(parameters);
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

void Fill(const std::vector<int>& units, Elements& elements) {
  ASSERT_EQ(static_cast<int64_t>(units.size()), elements.size());
  for (size_t i = 0; i < units.size(); ++i) elements.Set(static_cast<int64_t>(i), units[i] / 64.0);
}

std::unique_ptr<OwnedProblem> ProblemOf(const json& golden) {
  Spec spec;
  spec.heads = golden["heads"];
  spec.head_dim = golden["head_dim"];
  spec.value_dim = golden["value_dim"];
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  spec.kernel = KernelOf(golden);
  const auto lengths = golden["lengths"].get<std::vector<int32_t>>();
  auto problem = std::make_unique<OwnedProblem>(spec, lengths, lengths);
  Fill(golden["query"], problem->query);
  Fill(golden["key"], problem->key);
  Fill(golden["value"], problem->value);
  return problem;
}

std::vector<double> RunCast(const json& golden, const OwnedProblem& problem) {
  const std::vector<int> units = golden["surrogates"];
  Elements surrogates(DType::kFloat32, static_cast<int64_t>(units.size()));
  Fill(units, surrogates);
  std::vector<float> gate;
  for (int unit : golden["gate"].get<std::vector<int>>()) {
    gate.push_back(static_cast<float>(unit) / 64);
  }
  const int64_t clusters = surrogates.size() / (problem.spec.heads * problem.spec.head_dim);
  return CastReference(problem.spec, problem.view, {surrogates.data(), clusters, gate});
}

class GoldenApproximateTest : public testing::TestWithParam<json> {};

TEST_P(GoldenApproximateTest, TheReferenceAgrees) {
  const json& golden = GetParam();
  const auto problem = ProblemOf(golden);
  const bool is_cast = std::holds_alternative<Cast>(problem->spec.kernel);
  const std::vector<double> output =
      is_cast ? RunCast(golden, *problem) : ClusteredReference(problem->spec, problem->view);
  const std::vector<double> expected = golden["output"];
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], expected[i], 1e-12);
  if (is_cast) return;
  EXPECT_EQ(ClusterLabels(problem->spec, problem->view),
            golden["labels"].get<std::vector<int32_t>>());
}

INSTANTIATE_TEST_SUITE_P(Approximate, GoldenApproximateTest, testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name = info.param["name"];
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention
