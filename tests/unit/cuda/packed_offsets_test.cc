#include "engine/device/cuda/packing/packed_offsets.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/base/error.h"

namespace castor {
namespace {

constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

attention::Spec SmallSpec() {
  attention::Spec spec;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = 4;
  spec.value_dim = 3;
  return spec;
}

attention::Problem Dense(const std::vector<int32_t>& cu_q, const std::vector<int32_t>& cu_k) {
  attention::Problem problem;
  problem.query_stride = problem.key_stride = 8;
  problem.value_stride = problem.output_stride = 6;
  problem.cu_seqlens_q = cu_q;
  problem.cu_seqlens_k = cu_k;
  return problem;
}

TEST(PackedOffsetsTest, RequestsFollowOneAnother) {
  const std::vector<int32_t> q1 = {0, 3, 5}, k1 = {0, 1, 9}, q2 = {0, 4}, k2 = {0, 2};
  const std::vector<attention::Problem> requests = {Dense(q1, k1), Dense(q2, k2)};
  const auto packed = PackOffsets(SmallSpec(), requests);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->cu_seqlens_q, (std::vector<int32_t>{0, 3, 5, 9}));
  EXPECT_EQ(packed->cu_seqlens_k, (std::vector<int32_t>{0, 1, 9, 11}));
}

TEST(PackedOffsetsTest, OffsetsStayInInt32) {
  const std::vector<int32_t> large = {0, kMost}, one = {0, 1};
  const std::vector<attention::Problem> fits = {Dense(large, one)};
  EXPECT_TRUE(PackOffsets(SmallSpec(), fits).ok());
  for (const auto& [q, k] : {std::pair{one, large}, std::pair{large, one}}) {
    const std::vector<attention::Problem> requests = {Dense(q, k), Dense(one, one)};
    EXPECT_EQ(ReasonOf(PackOffsets(SmallSpec(), requests).status()), Reason::kInternal);
  }
}

TEST(PackedOffsetsTest, FewerKeyHeadsAndValuesInKeysHaveNoGaps) {
  const std::vector<int32_t> one = {0, 1};
  attention::Spec spec = SmallSpec();
  spec.kv_heads = 1;
  std::vector<attention::Problem> requests = {Dense(one, one)};
  EXPECT_EQ(ReasonOf(PackOffsets(spec, requests).status()), Reason::kInternal);
  requests[0].key_stride = 4;
  requests[0].value_stride = 3;
  EXPECT_TRUE(PackOffsets(spec, requests).ok());
  spec.value_is_key_prefix = true;
  EXPECT_EQ(ReasonOf(PackOffsets(spec, requests).status()), Reason::kInternal);
  requests[0].value_stride = 4;
  EXPECT_TRUE(PackOffsets(spec, requests).ok());
}

TEST(PackedOffsetsTest, GapsAreRefused) {
  const std::vector<int32_t> one = {0, 1};
  for (int64_t attention::Problem::*stride :
       {&attention::Problem::query_stride, &attention::Problem::key_stride,
        &attention::Problem::value_stride, &attention::Problem::output_stride}) {
    std::vector<attention::Problem> requests = {Dense(one, one)};
    requests[0].*stride += 1;
    EXPECT_EQ(ReasonOf(PackOffsets(SmallSpec(), requests).status()), Reason::kInternal);
  }
}

}  // namespace
}  // namespace castor
