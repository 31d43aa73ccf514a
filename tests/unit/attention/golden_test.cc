// Cases that tests/golden/attention/*.py computed from the definitions, without any of our code.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/attention/vanilla_reference.h"
#include "engine/attention/variants.h"
#include "tests/unit/attention/random_problem.h"

namespace castor::attention {
namespace {

std::vector<nlohmann::json> Cases(const std::string& file) {
  std::ifstream stream(std::string(CASTOR_GOLDEN_DIR) + "/attention/" + file);
  return nlohmann::json::parse(stream).get<std::vector<nlohmann::json>>();
}

void Fill(const std::vector<int>& units, Elements& elements) {
  ASSERT_EQ(static_cast<int64_t>(units.size()), elements.size());
  for (size_t i = 0; i < units.size(); ++i) elements.Set(static_cast<int64_t>(i), units[i] / 64.0);
}

class GoldenTest : public testing::TestWithParam<nlohmann::json> {
 protected:
  static std::unique_ptr<OwnedProblem> Problem(DType dtype) {
    const nlohmann::json& golden = GetParam();
    Spec spec;
    spec.dtype = dtype;
    spec.heads = golden["heads"];
    spec.head_dim = golden["head_dim"];
    spec.value_dim = golden["value_dim"];
    spec.softmax_scale = golden["scale"];
    spec.kernel = Vanilla{golden["causal"]};
    auto problem =
        std::make_unique<OwnedProblem>(spec, golden["query_lengths"].get<std::vector<int32_t>>(),
                                       golden["key_lengths"].get<std::vector<int32_t>>());
    Fill(golden["query"], problem->query);
    Fill(golden["key"], problem->key);
    Fill(golden["value"], problem->value);
    return problem;
  }

  static std::vector<double> Expected() { return GetParam()["output"]; }
};

TEST_P(GoldenTest, TheReferenceAgrees) {
  const auto problem = Problem(DType::kFloat32);
  const std::vector<double> output = VanillaReference(problem->spec, problem->view);
  const std::vector<double> expected = Expected();
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], expected[i], 1e-13);
}

TEST_P(GoldenTest, EveryRowAgreesInEveryDtype) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const auto problem = Problem(dtype);
    for (const Variant& row : CpuVariants()) {
      if (row.kernel != KernelName::kVanilla || !row.supports(problem->spec)) continue;
      ASSERT_TRUE(row.run(problem->spec, {&problem->view, 1}).ok());
      EXPECT_LE(RelativeError(*problem, Expected()), Tolerance(dtype))
          << row.backend << " " << NameOf(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vanilla, GoldenTest, testing::ValuesIn(Cases("vanilla.json")),
                         [](const auto& info) {
                           std::string name = info.param["name"];
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention
