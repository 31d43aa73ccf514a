#include "engine/jobs/tenant_table.h"

#include <gtest/gtest.h>

#include <limits>

namespace castor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(TenantTableTest, WhoIsNotNamedHasTheDefaultTerms) {
  const TenantTerms terms{.weight = 2, .max_queued_tokens = 7};
  TenantTable table({{"a", terms}});
  EXPECT_EQ(table.of("a"), terms);
  EXPECT_EQ(table.of("b"), TenantTerms());
  EXPECT_EQ(table.WeightOf("a"), 2);
  EXPECT_EQ(table.WeightOf(""), 1);
}

TEST(TenantTableTest, SetReplacesAll) {
  TenantTable table({{"a", {.weight = 2}}});
  const uint64_t version = table.version();
  table.Set({{"b", {.weight = 3}}});
  EXPECT_GT(table.version(), version);
  EXPECT_EQ(table.WeightOf("a"), 1);
  EXPECT_EQ(table.WeightOf("b"), 3);
}

TEST(TenantTableTest, WhatIsOutOfRangeIsMadeToFit) {
  const auto weight = [](double of) { return TenantTable({{"a", {.weight = of}}}).WeightOf("a"); };
  for (const double low : {0.0, -0.0, -1.0, 1e-300, -kInfinity}) EXPECT_EQ(weight(low), 0.001);
  for (const double high : {1000.1, 1e300, kInfinity}) EXPECT_EQ(weight(high), 1000);
  EXPECT_EQ(weight(std::numeric_limits<double>::quiet_NaN()), 1);
  const TenantTerms wrong{.max_queued_requests = -1,
                          .max_queued_tokens = std::numeric_limits<int64_t>::min(),
                          .max_queued_bytes = std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(TenantTable({{"a", wrong}}).of("a"),
            (TenantTerms{.max_queued_bytes = std::numeric_limits<int64_t>::max()}));
}

}  // namespace
}  // namespace castor
