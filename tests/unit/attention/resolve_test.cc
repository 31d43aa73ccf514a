// The result of Resolve for a good request, and the scalars that it refuses.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/attention/resolve_fixture.h"

namespace castor::attention {
namespace {

// ---- accepted requests --------------------------------------------------------------------------

TEST(ResolveTest, FillsInDefaults) {
  const auto resolved = Resolve(Packed(6, 2, 16));
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.dtype, DType::kFloat32);
  EXPECT_EQ(resolved->spec.heads, 2);
  EXPECT_EQ(resolved->spec.head_dim, 16);
  EXPECT_EQ(resolved->spec.value_dim, 16);
  EXPECT_EQ(resolved->spec.softmax_scale, 0.25);
  EXPECT_TRUE(std::holds_alternative<Vanilla>(resolved->spec.kernel));
  EXPECT_EQ(resolved->cu_seqlens_q, (std::vector<int32_t>{0, 6}));
  EXPECT_EQ(resolved->cu_seqlens_k, (std::vector<int32_t>{0, 6}));
  EXPECT_EQ(resolved->output_shape, (std::vector<int64_t>{6, 2, 16}));
  EXPECT_EQ(resolved->query_tokens, 6);
  EXPECT_EQ(resolved->key_tokens, 6);
  EXPECT_EQ(resolved->staging_bytes, 4 * 6 * 2 * 16 * 4);
}

TEST(ResolveTest, RaggedCrossAttentionWithItsOwnValueDimension) {
  AttentionRequest request;
  request.query = Tensor({5, 2, 8}, DType::kBFloat16);
  request.key = Tensor({9, 2, 8}, DType::kBFloat16);
  request.value = Tensor({9, 2, 3}, DType::kBFloat16);
  request.query_lengths = {1, 4};
  request.key_lengths = {7, 2};
  request.softmax_scale = -0.5;
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->cu_seqlens_q, (std::vector<int32_t>{0, 1, 5}));
  EXPECT_EQ(resolved->cu_seqlens_k, (std::vector<int32_t>{0, 7, 9}));
  EXPECT_EQ(resolved->output_shape, (std::vector<int64_t>{5, 2, 3}));
  EXPECT_EQ(resolved->spec.value_dim, 3);
  EXPECT_EQ(resolved->spec.softmax_scale, -0.5);
  EXPECT_EQ(resolved->staging_bytes, 2 * (5 * 2 * 8 + 9 * 2 * 8 + 9 * 2 * 3 + 5 * 2 * 3));
}

TEST(ResolveTest, OneSequenceMayHaveOtherKeysWithoutLengths) {
  AttentionRequest request = Packed(6, 2, 4);
  request.key = request.value = Tensor({9, 2, 4});
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->cu_seqlens_k, (std::vector<int32_t>{0, 9}));
  request.key_lengths = {9};
  EXPECT_TRUE(Resolve(request).ok());
}

TEST(ResolveTest, QueryLengthsHoldForKeysToo) {
  AttentionRequest request = Packed(6, 2, 4);
  request.query_lengths = {2, 4};
  request.kernel = Vanilla{.causal = true};
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->cu_seqlens_k, (std::vector<int32_t>{0, 2, 6}));
}

TEST(ResolveTest, BatchedForm) {
  AttentionRequest request;
  request.query = Tensor({3, 5, 2, 4});
  request.key = Tensor({3, 7, 2, 4});
  request.value = Tensor({3, 7, 2, 6});
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->cu_seqlens_q, (std::vector<int32_t>{0, 5, 10, 15}));
  EXPECT_EQ(resolved->cu_seqlens_k, (std::vector<int32_t>{0, 7, 14, 21}));
  EXPECT_EQ(resolved->output_shape, (std::vector<int64_t>{3, 5, 2, 6}));
  EXPECT_EQ(resolved->query_tokens, 15);
  EXPECT_EQ(resolved->key_tokens, 21);
}

TEST(ResolveTest, PiecesAddUp) {
  AttentionRequest request = Packed(6, 2, 4);
  request.query.pieces = {Bytes(100), Bytes(0), Bytes(91), Bytes(1)};
  EXPECT_TRUE(Resolve(request).ok());
}

// ---- scalars ------------------------------------------------------------------------------------

TEST(ResolveScalarTest, SoftmaxScaleMustBeFinite) {
  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}, 1e39, -1e300}) {
    ExpectRefusedAfter([&](auto& r) { r.softmax_scale = bad; }, "softmax_scale");
  }
  for (const double good : {0.0, -1.0, 3.4e38, 1e-300}) {
    AttentionRequest request = Packed(6, 2, 4);
    request.softmax_scale = good;
    EXPECT_TRUE(Resolve(request).ok()) << good;
  }
}

TEST(ResolveScalarTest, FidelityRows) {
  ExpectRefusedAfter([](auto& r) { r.fidelity_rows = -1; }, "fidelity_rows");
  ExpectRefusedAfter([](auto& r) { r.fidelity_rows = 1025; }, "fidelity_rows");
  AttentionRequest request = Packed(6, 2, 4);
  request.fidelity_rows = 1024;
  EXPECT_TRUE(Resolve(request).ok());
}

}  // namespace
}  // namespace castor::attention
