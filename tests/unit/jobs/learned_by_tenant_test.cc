// What is forgotten, and whose.
#include "engine/jobs/learned_by_tenant.h"

#include <gtest/gtest.h>

#include <string>

namespace castor {
namespace {

TEST(LearnedByTenantTest, EachTenantHasItsOwn) {
  LearnedByTenant<int, double> learned(10);
  EXPECT_EQ(learned.Find("a", 1), nullptr);
  EXPECT_EQ(learned.Learn("a", 1, 0.5), 0.5);
  learned.Learn("a", 1, 0.5) = 2;
  learned.Learn("b", 1) = 3;
  EXPECT_EQ(*learned.Find("a", 1), 2);
  EXPECT_EQ(*learned.Find("b", 1), 3);
  EXPECT_EQ(learned.Find("a", 2), nullptr);
  EXPECT_EQ(learned.Find("c", 1), nullptr);
}

// One tenant's many kinds take the room of its own old ones.
TEST(LearnedByTenantTest, ForgetsWhatIsOldestOfTheTenantWithTheMost) {
  LearnedByTenant<int, int> learned(8);
  learned.Learn("quiet", 0);
  learned.Learn("flood", 100);
  for (int kind = 0; kind < 1000; ++kind) {
    learned.Learn("flood", kind % 50);
    learned.Learn("flood", 100);  // not old
    EXPECT_NE(learned.Find("quiet", 0), nullptr);
    EXPECT_NE(learned.Find("flood", 100), nullptr);
    EXPECT_NE(learned.Find("flood", kind % 50), nullptr);
  }
  int left = 0;
  for (int kind = 0; kind <= 100; ++kind) left += learned.Find("flood", kind) != nullptr;
  EXPECT_EQ(left, 7);
}

TEST(LearnedByTenantTest, OfEqualTenantsTheOldestGoes) {
  LearnedByTenant<int, int> learned(4);
  for (int tenant = 0; tenant < 100; ++tenant) learned.Learn(std::to_string(tenant), 0);
  for (int tenant = 0; tenant < 100; ++tenant) {
    EXPECT_EQ(learned.Find(std::to_string(tenant), 0) != nullptr, tenant >= 96) << tenant;
  }
}

}  // namespace
}  // namespace castor
