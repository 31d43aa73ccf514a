// Cases that tests/golden/attention/*.py computed from the definitions, without any of our code.

#include "tests/support/attention/golden.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/attention/variants.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

class GoldenTest : public testing::TestWithParam<nlohmann::json> {
 protected:
  static std::unique_ptr<OwnedProblem> Problem(DType dtype) {
    const nlohmann::json& golden = GetParam();
    Spec spec = MakeSpec(dtype, Vanilla{golden["causal"]}, golden["heads"], golden["head_dim"],
                         golden["value_dim"]);
    spec.softmax_scale = golden["scale"];
    auto problem =
        std::make_unique<OwnedProblem>(spec, golden["query_lengths"].get<std::vector<int32_t>>(),
                                       golden["key_lengths"].get<std::vector<int32_t>>());
    FillFromUnits(golden["query"], problem->query);
    FillFromUnits(golden["key"], problem->key);
    FillFromUnits(golden["value"], problem->value);
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
  for (const DType dtype : kFloatTypes) {
    const auto problem = Problem(dtype);
    for (const Variant& row : CpuVariants()) {
      if (row.kernel != KernelName::kVanilla || !row.supports(problem->spec)) continue;
      ASSERT_TRUE(row.run(problem->spec, {&problem->view, 1}, RunToEnd()).ok());
      EXPECT_LE(RelativeError(*problem, Expected()), Tolerance(dtype))
          << row.backend << " " << NameOf(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vanilla, GoldenTest, testing::ValuesIn(GoldenCases("vanilla.json")),
                         NameOfCase);

}  // namespace
}  // namespace castor::attention
