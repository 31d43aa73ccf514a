// What Resolve makes of positions, softcaps and biases of keys.

#include <cmath>

#include "tests/unit/attention/resolve_fixture.h"

namespace castor::attention {
namespace {

constexpr int64_t kMostPosition = int64_t{1} << 40;

// Two sequences of 2 and 4 queries, 5 and 1 keys, in two heads.
AttentionRequest TwoSequences() {
  AttentionRequest request = Packed(6, 2, 4);
  request.query_lengths = {2, 4};
  request.key_lengths = {5, 1};
  request.kernel = Vanilla{.causal = true};
  return request;
}

template <typename Change>
void ExpectRefusedOfTwo(Change change, std::string_view field) {
  AttentionRequest request = TwoSequences();
  change(request);
  ExpectRefused(request, field);
}

TEST(ResolvePositionsTest, QueriesEndWhereKeysDo) {
  AttentionRequest request = TwoSequences();
  auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->spec.placed);

  request.positions.query = {3, -3};  // the same in numbers
  resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->spec.placed);
  EXPECT_TRUE(resolved->places.empty());
}

TEST(ResolvePositionsTest, PlacesCountFromTheFirstKey) {
  AttentionRequest request = TwoSequences();
  request.positions.query = {103, 7};
  request.positions.key = {100, 0};
  request.positions.window = {.left = 10, .right = -1, .always_visible = 102};
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->spec.placed);
  ASSERT_EQ(resolved->places.size(), 2);
  EXPECT_EQ(resolved->places[0].shift, 3);
  EXPECT_EQ(resolved->places[0].visible, 2);
  EXPECT_EQ(resolved->places[1].shift, 7);
  EXPECT_EQ(resolved->places[1].visible, 1);
  EXPECT_EQ(resolved->spec.window.left, 10);
}

TEST(ResolvePositionsTest, NoKeyIsASinkUnlessTheRequestSaysSo) {
  AttentionRequest request = TwoSequences();
  request.positions.query = {0, 0};
  request.positions.key = {-100, -100};
  request.positions.window.left = 1;
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->places.size(), 2);
  EXPECT_EQ(resolved->places[0].shift, 100);
  EXPECT_EQ(resolved->places[0].visible, 0);
}

TEST(ResolvePositionsTest, WhatChangesNothingIsLeftOut) {
  AttentionRequest request = TwoSequences();
  request.kernel = Vanilla{};
  request.positions.query = {1000, 2000};
  request.positions.window.always_visible = 3;
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->spec.placed);
  EXPECT_EQ(resolved->spec.window, Window{});
}

TEST(ResolvePositionsTest, RefusesFirstPositionsThatAreNone) {
  ExpectRefusedOfTwo([](auto& r) { r.positions.query = {1}; }, "positions.query");
  ExpectRefusedOfTwo([](auto& r) { r.positions.key = {1, 2, 3}; }, "positions.key");
  for (const int64_t far : {INT64_MAX, INT64_MIN, kMostPosition + 1, -kMostPosition - 1}) {
    ExpectRefusedOfTwo([&](auto& r) { r.positions.query = {0, far}; }, "positions.query[1]");
    ExpectRefusedOfTwo([&](auto& r) { r.positions.key = {far, 0}; }, "positions.key[0]");
  }
  // The last token's counts.
  ExpectRefusedOfTwo([](auto& r) { r.positions.key = {kMostPosition - 4, 0}; }, "positions.key[0]");
  AttentionRequest request = TwoSequences();
  request.positions.key = {kMostPosition - 5, -kMostPosition};
  request.positions.query = {-kMostPosition, kMostPosition - 4};
  EXPECT_TRUE(Resolve(request).ok());
}

TEST(ResolvePositionsTest, RefusesWindowsThatAreNone) {
  ExpectRefusedOfTwo([](auto& r) { r.positions.window.left = -2; }, "positions.window.left");
  ExpectRefusedOfTwo([](auto& r) { r.positions.window.right = INT64_MIN; },
                     "positions.window.right");
  ExpectRefusedOfTwo([](auto& r) { r.positions.window.always_visible = -1; },
                     "positions.always_visible");
  AttentionRequest request = TwoSequences();
  request.positions.window = {.left = INT64_MAX, .right = INT64_MAX, .always_visible = INT64_MAX};
  EXPECT_TRUE(Resolve(request).ok());
}

TEST(ResolvePositionsTest, RefusesBiasesThatDoNotFit) {
  const auto slopes = [](std::vector<float> of_heads, std::string_view field, int64_t query = 0) {
    ExpectRefusedOfTwo(
        [&](auto& r) {
          if (query != 0) r.positions.query = {0, query};
          r.positions.alibi_slopes = of_heads;
        },
        field);
  };
  slopes({1}, "positions.alibi_slopes");
  slopes({1, NAN}, "positions.alibi_slopes[1]");
  slopes({-INFINITY, 1}, "positions.alibi_slopes[0]");
  slopes({0.5f, -2.6e29f}, "positions.alibi_slopes[1]");  // distances are up to 4
  slopes({1e20f, 1}, "positions.alibi_slopes[0]", kMostPosition - 4);
  AttentionRequest request = TwoSequences();
  request.positions.alibi_slopes = {0.5f, -2.4e29f};
  EXPECT_TRUE(Resolve(request).ok());
  const auto table = [](TensorInput tensor, std::string_view field) {
    ExpectRefusedOfTwo([&](auto& r) { r.positions.relative_bias = tensor; }, field);
  };
  table(Tensor({2, 3}, DType::kFloat16), "positions.relative_bias.dtype");
  table(Tensor({2, 4}), "positions.relative_bias.shape");
  table(Tensor({2, 3, 1}), "positions.relative_bias.shape");
  table(Tensor({3, 3}), "positions.relative_bias.shape[0]");
  table(Hollow({2, 3}), "positions.relative_bias.raw");
  table(Hollow({2, (int64_t{1} << 61) + 1}), "positions.relative_bias.shape");
}

TEST(ResolvePositionsTest, RefusesSoftcapsThatAreNone) {
  for (const double softcap : {-1.0, double{NAN}, double{INFINITY}, 1.1e30, -0x1p-1074}) {
    ExpectRefusedOfTwo([&](auto& r) { r.softcap = softcap; }, "softcap");
  }
}

TEST(ResolvePositionsTest, RefusesKeyBiasesThatDoNotFit) {
  const auto bias = [](TensorInput tensor, std::string_view field) {
    ExpectRefusedOfTwo([&](auto& r) { r.key_bias = tensor; }, field);
  };
  bias(Tensor({6}, DType::kBFloat16), "key_bias.dtype");
  bias(Tensor({1, 6, 2}), "key_bias.shape");
  bias(Tensor({5}), "key_bias.shape[0]");
  bias(Tensor({6, 3}), "key_bias.shape[1]");
  bias(Hollow({6}), "key_bias.raw");
  bias(Hollow({0}), "key_bias.shape[0]");
  for (const int64_t heads : {1, 2}) {
    AttentionRequest request = TwoSequences();
    request.key_bias = heads == 1 ? Tensor({6}) : Tensor({6, 2});
    const auto resolved = Resolve(request);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->spec.key_bias_heads, heads);
  }
  AttentionRequest batch;
  batch.query = batch.key = batch.value = Tensor({3, 5, 2, 4});
  batch.key_bias = Tensor({15});
  ExpectRefused(batch, "key_bias.shape");
  batch.key_bias = Tensor({2, 5});
  ExpectRefused(batch, "key_bias.shape[0]");
  batch.key_bias = Tensor({3, 5, 2});
  EXPECT_TRUE(Resolve(batch).ok());
}

TEST(ResolvePositionsTest, OtherKernelsRefuseWhatTheyDoNotHonour) {
  Automatic automatic;
  automatic.allowed = {KernelName::kClustered};
  automatic.max_relative_error = 0.5;
  for (const Kernel& kernel :
       {Kernel(Clustered{}), Kernel(ImprovedClustered{}), Kernel(automatic)}) {
    const auto refused = [&](auto change, std::string_view field) {
      ExpectRefusedAfter(
          [&](auto& r) {
            r.kernel = kernel;
            change(r);
          },
          field);
    };
    refused([](auto& r) { r.positions.query = {1}; }, "positions");
    refused([](auto& r) { r.positions.window.left = 1; }, "positions");
    refused([](auto& r) { r.positions.alibi_slopes = {1, 1}; }, "positions");
    refused([](auto& r) { r.softcap = 1; }, "softcap");
  }
  ExpectRefusedAfter(
      [](auto& r) {
        Cast cast;
        cast.gate = Tensor({6});
        cast.surrogates = Tensor({3, 2, 4});
        r.kernel = cast;
        r.key_bias = Tensor({6});
      },
      "key_bias");
}

}  // namespace
}  // namespace castor::attention
