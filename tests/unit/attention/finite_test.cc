#include "engine/attention/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "tests/support/attention/elements.h"

namespace castor::attention {
namespace {

class FiniteTest : public testing::TestWithParam<DType> {};

TEST_P(FiniteTest, AcceptsEveryFiniteValue) {
  Elements elements(GetParam(), 20000);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < elements.size(); ++i) elements.Set(i, normal(random));
  elements.Set(0, GetParam() == DType::kFloat16 ? 65504 : 3.3e38);
  elements.Set(1, GetParam() == DType::kFloat16 ? -65504 : -3.3e38);
  elements.Set(2, std::numeric_limits<float>::denorm_min());
  elements.Set(3, -0.0);
  EXPECT_TRUE(CheckFinite(GetParam(), elements.bytes(), "query").ok());
  EXPECT_TRUE(CheckFinite(GetParam(), {}, "query").ok());
}

TEST_P(FiniteTest, FindsOneBadElementAnywhere) {
  Elements elements(GetParam(), 10000);
  for (const int64_t index : {0, 1, 15, 4095, 4096, 8191, 9998, 9999}) {
    for (const double bad : {double{NAN}, -double{NAN}, double{INFINITY}, -double{INFINITY}}) {
      elements.Set(index, bad);
      const absl::Status status = CheckFinite(GetParam(), elements.bytes(), "key");
      EXPECT_EQ(ReasonOf(status), Reason::kNonFiniteInput);
      EXPECT_EQ(FieldOf(status), "key");
      EXPECT_NE(std::string(status.message()).find("element " + std::to_string(index) + " "),
                std::string::npos)
          << status;
      elements.Set(index, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FiniteTest, testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(FiniteIntegerTest, IntegersAreFinite) {
  const std::vector<std::byte> ones(64, std::byte{0xff});
  EXPECT_TRUE(CheckFinite(DType::kInt32, ones, "ids").ok());
  EXPECT_TRUE(CheckFinite(DType::kInt64, ones, "ids").ok());
}

}  // namespace
}  // namespace castor::attention
