#include "engine/device/cuda/launch/cast_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace castor {
namespace {

using attention::Problem;
using testing::ElementsAre;

TEST(CastLayersTest, SharedLayersTravelOnce) {
  std::array<std::byte, 100> memory;
  const std::vector<int32_t> one = {0, 5};
  const std::vector<int32_t> three = {0, 5, 6, 9};
  Problem named, own, again;
  named.cu_seqlens_q = three;
  named.cast.surrogates = memory.data();
  own.cu_seqlens_q = one;
  own.cast.surrogates = memory.data() + 40;
  again.cu_seqlens_q = one;
  again.cast.surrogates = memory.data();
  const BatchLayers batch = DistinctLayers(std::vector<Problem>{named, own, again}, 10);
  EXPECT_THAT(batch.layers, ElementsAre(memory.data(), memory.data() + 40));
  EXPECT_THAT(batch.layer_of_sequence, ElementsAre(0, 0, 0, 1, 0));
}

TEST(CastLayersTest, ARequestMayHaveSeveralLayers) {
  std::array<std::byte, 100> memory;
  const std::vector<int32_t> three = {0, 5, 6, 9};
  const std::vector<int32_t> layers = {3, 0, 3};
  Problem request;
  request.cu_seqlens_q = three;
  request.cast.surrogates = memory.data();
  request.cast.layer_of_sequence = layers;
  const BatchLayers batch = DistinctLayers(std::vector<Problem>{request}, 10);
  EXPECT_THAT(batch.layers, ElementsAre(memory.data() + 30, memory.data()));
  EXPECT_THAT(batch.layer_of_sequence, ElementsAre(0, 1, 0));
}

}  // namespace
}  // namespace castor
