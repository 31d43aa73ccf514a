#include "engine/base/spare_nodes.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace castor {
namespace {

template <typename Map>
class SpareNodesTest : public ::testing::Test {
 protected:
  Map map_;
  SpareNodes<Map> spare_;
};

using Maps = ::testing::Types<std::map<std::string, std::shared_ptr<int>>,
                              std::unordered_map<std::string, std::shared_ptr<int>>>;
TYPED_TEST_SUITE(SpareNodesTest, Maps);

TYPED_TEST(SpareNodesTest, KeepsNodesButNothingOfTheirValues) {
  const auto value = std::make_shared<int>(1);
  const auto* const node = &*this->spare_.Insert(this->map_, "first", value);
  EXPECT_EQ(this->spare_.Take(this->map_, this->map_.find("first")), value);
  EXPECT_TRUE(this->map_.empty());
  EXPECT_EQ(value.use_count(), 1);

  const auto again = this->spare_.Insert(this->map_, "second", std::make_shared<int>(2));
  EXPECT_EQ(&*again, node);
  EXPECT_EQ(*this->map_.at("second"), 2);
  EXPECT_EQ(this->map_.size(), 1u);
}

TYPED_TEST(SpareNodesTest, KeepsFewNodes) {
  for (int i = 0; i < 100; ++i) {
    this->spare_.Insert(this->map_, std::to_string(i), std::make_shared<int>(i));
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(*this->spare_.Take(this->map_, this->map_.find(std::to_string(i))), i);
  }
  EXPECT_EQ(this->spare_.size(), SpareNodes<TypeParam>::kMost);
}

}  // namespace
}  // namespace castor
