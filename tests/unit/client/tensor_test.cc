#include "client/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace castor::client {
namespace {

TEST(Half, AllBitPatternsSurviveTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), bits);
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(FloatToHalf(1.0f), 0x3c00);
  EXPECT_EQ(FloatToHalf(-2.0f), 0xc000);
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToHalf(0x1p-24f), 0x0001);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Tensor, ValuesSurviveUpToTheTypesPrecision) {
  const std::vector<float> values = {0, 1, -2.5f, 0.333f, 1e-3f, 100};
  for (const auto& [dtype, tolerance] :
       {std::pair{v1::FLOAT32, 0.0}, {v1::FLOAT16, 5e-4}, {v1::BFLOAT16, 4e-3}}) {
    const v1::Tensor tensor = MakeTensor(values, {2, 3}, dtype);
    EXPECT_EQ(tensor.raw().size(), 6 * SizeOf(dtype));
    EXPECT_EQ(ShapeString(tensor), "[2, 3]");
    const auto back = ToFloats(tensor);
    ASSERT_TRUE(back.has_value());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR((*back)[i], values[i], tolerance * std::fabs(values[i]));
    }
  }
}

TEST(ToFloats, RefusesBytesThatDoNotFitTheShape) {
  v1::Tensor tensor = MakeTensor(std::vector<float>(6), {2, 3});
  tensor.set_shape(1, 4);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_shape(0, int64_t{1} << 62);  // wraps to a small product
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_shape(0, -2);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor = MakeTensor(std::vector<float>(6), {2, 3});
  tensor.mutable_raw()->push_back('x');
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_dtype(v1::INT64);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
}

}  // namespace
}  // namespace castor::client
