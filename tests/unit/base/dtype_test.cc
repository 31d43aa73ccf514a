#include "engine/base/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace castor {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

int64_t Elements(std::vector<int64_t> shape) { return NumElements(shape).value_or(-1); }
int64_t Bytes(DType dtype, std::vector<int64_t> shape) {
  return NumBytes(dtype, shape).value_or(-1);
}

TEST(DTypeTest, MultipliesAndAddsUpToTheLimit) {
  EXPECT_EQ(CheckedMultiply(3, 4), 12);
  EXPECT_EQ(CheckedMultiply(kMax, 1), kMax);
  EXPECT_EQ(CheckedMultiply(kMax, 0), 0);
  EXPECT_EQ(CheckedMultiply(kMax / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(CheckedMultiply(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
}

TEST(DTypeTest, RefusesNegativeOperands) {
  EXPECT_EQ(CheckedMultiply(-1, 4), std::nullopt);
  EXPECT_EQ(CheckedMultiply(kMin, kMin), std::nullopt);
  EXPECT_EQ(CheckedMultiply(-1, 0), std::nullopt);
  EXPECT_EQ(CheckedAdd(5, -1), std::nullopt);
}

TEST(DTypeTest, CountsElementsAndBytes) {
  EXPECT_EQ(Elements({}), 1);
  EXPECT_EQ(Elements({3, 8, 64}), 3 * 8 * 64);
  EXPECT_EQ(Elements({3, 0, 64}), 0);
  EXPECT_EQ(Bytes(DType::kBFloat16, {3, 5}), 30);
}

TEST(DTypeTest, NoticesShapesWhoseProductWraps) {
  // In 64 bits, 2^32 * 2^32 wraps to 0, and so do the bytes of 2^62 elements of 4 bytes.
  EXPECT_EQ(Elements({int64_t{1} << 32, int64_t{1} << 32}), -1);
  EXPECT_EQ(Bytes(DType::kFloat32, {int64_t{1} << 62}), -1);
  EXPECT_EQ(Elements({kMax, kMax, 0}), -1);  // overflows before the zero is seen
  EXPECT_EQ(Elements({4, -1}), -1);
}

TEST(DTypeTest, PrintsShapes) {
  EXPECT_EQ(ShapeString(std::vector<int64_t>{3, 8, 64}), "[3, 8, 64]");
  EXPECT_EQ(ShapeString({}), "[]");
}

}  // namespace
}  // namespace castor
