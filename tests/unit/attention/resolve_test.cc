// The result of Resolve for a good request, and the scalars that it refuses.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
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

// Tensors and sequences that Resolve refuses, by field.

// ---- tensors ------------------------------------------------------------------------------------

TEST(ResolveTensorTest, ElementTypes) {
  ExpectRefusedAfter([](auto& r) { r.query = Tensor({6, 2, 4}, DType::kInt32); }, "query.dtype");
  ExpectRefusedAfter([](auto& r) { r.query = Tensor({6, 2, 4}, DType::kInt64); }, "query.dtype");
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({6, 2, 4}, DType::kFloat16); }, "key.dtype");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({6, 2, 4}, DType::kBFloat16); }, "value.dtype");
}

TEST(ResolveTensorTest, NumberOfDimensions) {
  ExpectRefusedAfter([](auto& r) { r.query = Hollow({}); }, "query.shape");
  ExpectRefusedAfter([](auto& r) { r.query = Tensor({12, 4}); }, "query.shape");
  ExpectRefusedAfter([](auto& r) { r.query = Tensor({1, 1, 6, 2, 4}); }, "query.shape");
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({1, 6, 2, 4}); }, "key.shape");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({48}); }, "value.shape");
  ExpectRefusedAfter([](auto& r) { r.query = Tensor({1, 6, 2, 4}); }, "key.shape");
}

TEST(ResolveTensorTest, ZeroAndNegativeDimensions) {
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    for (size_t i = 0; i < 3; ++i) {
      ExpectRefusedAfter([&](auto& r) { r.query.shape[i] = bad; }, FieldAt("query.shape", i));
      ExpectRefusedAfter([&](auto& r) { r.key.shape[i] = bad; }, FieldAt("key.shape", i));
      ExpectRefusedAfter([&](auto& r) { r.value.shape[i] = bad; }, FieldAt("value.shape", i));
    }
  }
}

TEST(ResolveTensorTest, ShapesThatOverflow) {
  constexpr int64_t k2To31 = int64_t{1} << 31;
  ExpectRefusedAfter([](auto& r) { r.query = Hollow({kHuge, 2, 4}); }, "query.shape");
  // 2^64 elements wrap to zero; 2^62 elements have 2^64 bytes, which wrap too; 2^63 bytes.
  ExpectRefusedAfter([](auto& r) { r.key = Hollow({k2To31, k2To31, 4}); }, "key.shape");
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31, 1}); }, "value.shape");
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31 / 2, 1}); }, "value.shape");
  // 2^62 bytes do not overflow, but the data is missing.
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31 / 4, 1}); }, "value.raw");
}

TEST(ResolveTensorTest, TokensDeclaredWithoutData) {
  ExpectRefusedAfter([](auto& r) { r.query = Hollow({int64_t{1} << 31, 2, 4}); }, "query.raw");
  ExpectRefusedAfter([](auto& r) { r.query.pieces.clear(); }, "query.raw");
  ExpectRefusedAfter([](auto& r) { r.key.pieces = {Bytes(6 * 2 * 4 * 4 - 1)}; }, "key.raw");
  ExpectRefusedAfter([](auto& r) { r.value.pieces.push_back(Bytes(1)); }, "value.raw");
  // A tensor in a file counts by the size of its range.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kBytes = 6 * 2 * 4 * 4;
  for (const int64_t size : {kBytes - 1, kBytes + 1, int64_t{0}, int64_t{-1}, kMax}) {
    ExpectRefusedAfter(
        [size](auto& r) {
          r.key.file = FileRange{0, 0, size};
        },
        "key.shared_memory");
  }
}

TEST(ResolveTensorTest, DimensionsThatDisagree) {
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({6, 3, 4}); }, "key.shape[1]");
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({6, 2, 5}); }, "key.shape[2]");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({7, 2, 4}); }, "value.shape[0]");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({6, 1, 4}); }, "value.shape[1]");
}

TEST(ResolveTensorTest, HeadsOfKeysDivideThoseOfQueries) {
  AttentionRequest request;
  request.query = Tensor({6, 12, 4});
  for (const int64_t kv_heads : {1, 2, 3, 4, 6, 12}) {
    request.key = request.value = Tensor({6, kv_heads, 4});
    const absl::StatusOr<Resolved> resolved = Resolve(request);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->spec.kv_heads, kv_heads);
    EXPECT_EQ(resolved->output_shape, (std::vector<int64_t>{6, 12, 4}));
    EXPECT_EQ(resolved->staging_bytes, 4 * 6 * 4 * (2 * 12 + 2 * kv_heads));
    request.value = Tensor({6, kv_heads == 12 ? 1 : 12, 4});
    ExpectRefused(request, "value.shape[1]");
  }
  for (const int64_t kv_heads : {5, 7, 8, 9, 10, 11, 13, 24}) {
    request.key = request.value = Tensor({6, kv_heads, 4});
    ExpectRefused(request, "key.shape[1]");
  }
  request.query = Tensor({2, 3, 4, 4});
  request.key = request.value = Tensor({2, 3, 3, 4});
  ExpectRefused(request, "key.shape[2]");
}

TEST(ResolveTensorTest, ValuesMayBePartOfKeys) {
  AttentionRequest request = Packed(6, 4, 9);
  request.key = Tensor({7, 2, 9});
  request.value = {};
  request.query_lengths = {6};
  request.key_lengths = {7};
  ExpectRefused(request, "value.shape");
  request.value_dim = 5;
  ExpectRefused(request, "value.shape");
  request.value_is_key_prefix = true;
  for (const int64_t value_dim : {1, 5, 9}) {
    request.value_dim = value_dim;
    const absl::StatusOr<Resolved> resolved = Resolve(request);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_TRUE(resolved->spec.value_is_key_prefix);
    EXPECT_EQ(resolved->spec.value_dim, value_dim);
    EXPECT_EQ(resolved->output_shape, (std::vector<int64_t>{6, 4, value_dim}));
    EXPECT_EQ(resolved->staging_bytes, 4 * (6 * 4 * 9 + 7 * 2 * 9 + 6 * 4 * value_dim));
  }
  for (const int64_t value_dim : {int64_t{0}, int64_t{-1}, int64_t{10}, kHuge}) {
    request.value_dim = value_dim;
    ExpectRefused(request, "value_dim");
  }
  request.value_dim = 9;
  request.value = request.key;
  ExpectRefused(request, "value");
  request.value_is_key_prefix = false;
  ExpectRefused(request, "value_dim");
}

TEST(ResolveTensorTest, BatchedDimensionsThatDisagree) {
  AttentionRequest good;
  good.query = good.key = good.value = Tensor({3, 5, 2, 4});
  ASSERT_TRUE(Resolve(good).ok());
  AttentionRequest bad = good;
  bad.key = Tensor({2, 5, 2, 4});
  ExpectRefused(bad, "key.shape[0]");
  bad = good;
  bad.value = Tensor({4, 5, 2, 4});
  ExpectRefused(bad, "value.shape[0]");
  bad = good;
  bad.key = Tensor({3, 5, 3, 4});
  ExpectRefused(bad, "key.shape[2]");
  bad = good;
  bad.key = Tensor({3, 5, 2, 8});
  ExpectRefused(bad, "key.shape[3]");
  bad = good;
  bad.value = Tensor({3, 6, 2, 4});
  ExpectRefused(bad, "value.shape[1]");
}

// ---- sequences ----------------------------------------------------------------------------------

TEST(ResolveSequencesTest, LengthsMustAddUp) {
  const struct {
    std::vector<int64_t> query;
    std::vector<int64_t> key;
    const char* field;
  } kCases[] = {
      {{2, 3}, {}, "query_lengths"},
      {{2, 5}, {}, "query_lengths[1]"},
      {{6, 0}, {}, "query_lengths[1]"},
      {{0, 6}, {}, "query_lengths[0]"},
      {{-1, 7}, {}, "query_lengths[0]"},
      {{3, 3}, {3, 2}, "key_lengths"},
      {{3, 3}, {6, 0}, "key_lengths[1]"},
      // Their sum modulo 2^64 is 6.
      {{kHuge, kHuge, kHuge, kHuge, 6}, {}, "query_lengths[0]"},
      {{1, std::numeric_limits<int64_t>::max()}, {}, "query_lengths[1]"},
      // As many sequences of keys as of queries.
      {{3, 3}, {6}, "key_lengths"},
      {{}, {3, 3}, "key_lengths"},
  };
  for (const auto& bad : kCases) {
    ExpectRefusedAfter(
        [&](auto& r) {
          r.query_lengths = bad.query;
          r.key_lengths = bad.key;
        },
        bad.field);
  }
  ExpectRefusedAfter(
      [](auto& r) {
        r.key = r.value = Tensor({9, 2, 4});
        r.query_lengths = {2, 4};
      },
      "key_lengths");
}

TEST(ResolveSequencesTest, BatchedFormHasNoLengths) {
  AttentionRequest request;
  request.query = request.key = request.value = Tensor({3, 5, 2, 4});
  request.query_lengths = {5, 5, 5};
  ExpectRefused(request, "query_lengths");
  request.query_lengths.clear();
  request.key_lengths = {5, 5, 5};
  ExpectRefused(request, "key_lengths");
}

TEST(ResolveSequencesTest, TooMany) {
  AttentionRequest request = Packed(kMaxSequences + 1, 1, 1);
  request.query_lengths.assign(kMaxSequences + 1, 1);
  ExpectRefused(request, "query_lengths");
  request = Packed(kMaxSequences, 1, 1);
  request.query_lengths.assign(kMaxSequences, 1);
  EXPECT_TRUE(Resolve(request).ok());
  request = {};
  request.query = request.key = request.value = Tensor({kMaxSequences + 1, 1, 1, 1});
  ExpectRefused(request, "query.shape[0]");
}

}  // namespace
}  // namespace castor::attention
