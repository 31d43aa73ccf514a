#include "engine/attention/resolve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "engine/attention/shapes.h"
#include "engine/base/error.h"

namespace castor::attention {
namespace {

constexpr int64_t kMaxSequences = 100;
constexpr int64_t kHuge = int64_t{1} << 62;

// Never read: the checks only count bytes.
std::span<const std::byte> Bytes(int64_t count) {
  static const std::vector<std::byte> memory(1 << 20);
  EXPECT_LE(count, static_cast<int64_t>(memory.size()));
  return std::span(memory).first(count);
}

TensorInput Tensor(std::vector<int64_t> shape, DType dtype = DType::kFloat32) {
  TensorInput tensor;
  tensor.dtype = dtype;
  tensor.pieces = {Bytes(*NumBytes(dtype, shape))};
  tensor.shape = std::move(shape);
  return tensor;
}

// Declares a shape that its data does not have.
TensorInput Hollow(std::vector<int64_t> shape) {
  TensorInput tensor;
  tensor.shape = std::move(shape);
  return tensor;
}

AttentionRequest Packed(int64_t tokens, int64_t heads, int64_t dim) {
  AttentionRequest request;
  request.query = request.key = request.value = Tensor({tokens, heads, dim});
  return request;
}

bool AnySpec(const Spec&) { return true; }
bool Float32Only(const Spec& spec) { return spec.dtype == DType::kFloat32; }
absl::Status NoRun(const Spec&, std::span<const Problem>) { return absl::OkStatus(); }

constexpr Variant kVanillaOnly[] = {{KernelName::kVanilla, "test", &AnySpec, &NoRun}};

absl::StatusOr<Resolved> Resolve(const AttentionRequest& request) {
  return Resolve(request, kVanillaOnly, CastLayers(), kMaxSequences);
}

void ExpectRefused(const AttentionRequest& request, std::string_view field) {
  const absl::StatusOr<Resolved> resolved = Resolve(request);
  ASSERT_FALSE(resolved.ok()) << "expected a refusal at " << field;
  EXPECT_EQ(ReasonOf(resolved.status()), Reason::kInvalidField) << resolved.status();
  EXPECT_EQ(FieldOf(resolved.status()), field) << resolved.status();
}

template <typename Change>
void ExpectRefusedAfter(Change change, std::string_view field) {
  AttentionRequest request = Packed(6, 2, 4);
  change(request);
  ExpectRefused(request, field);
}

// ---- what passes -------------------------------------------------------------------------------

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

// ---- tensors -----------------------------------------------------------------------------------

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
      ExpectRefusedAfter([&](auto& r) { r.query.shape[i] = bad; }, Index("query.shape", i));
      ExpectRefusedAfter([&](auto& r) { r.key.shape[i] = bad; }, Index("key.shape", i));
      ExpectRefusedAfter([&](auto& r) { r.value.shape[i] = bad; }, Index("value.shape", i));
    }
  }
}

TEST(ResolveTensorTest, ShapesThatOverflow) {
  constexpr int64_t k2To31 = int64_t{1} << 31;
  ExpectRefusedAfter([](auto& r) { r.query = Hollow({kHuge, 2, 4}); }, "query.shape");
  // 2^64 elements, which wrap to zero; 2^62 elements, whose 2^64 bytes do; 2^63 bytes.
  ExpectRefusedAfter([](auto& r) { r.key = Hollow({k2To31, k2To31, 4}); }, "key.shape");
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31, 1}); }, "value.shape");
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31 / 2, 1}); }, "value.shape");
  // 2^62 bytes can be counted, but are not there.
  ExpectRefusedAfter([](auto& r) { r.value = Hollow({k2To31, k2To31 / 4, 1}); }, "value.raw");
}

TEST(ResolveTensorTest, TokensDeclaredWithoutData) {
  ExpectRefusedAfter([](auto& r) { r.query = Hollow({int64_t{1} << 31, 2, 4}); }, "query.raw");
  ExpectRefusedAfter([](auto& r) { r.query.pieces.clear(); }, "query.raw");
  ExpectRefusedAfter([](auto& r) { r.key.pieces = {Bytes(6 * 2 * 4 * 4 - 1)}; }, "key.raw");
  ExpectRefusedAfter([](auto& r) { r.value.pieces.push_back(Bytes(1)); }, "value.raw");
}

TEST(ResolveTensorTest, DimensionsThatDisagree) {
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({6, 3, 4}); }, "key.shape[1]");
  ExpectRefusedAfter([](auto& r) { r.key = Tensor({6, 2, 5}); }, "key.shape[2]");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({7, 2, 4}); }, "value.shape[0]");
  ExpectRefusedAfter([](auto& r) { r.value = Tensor({6, 1, 4}); }, "value.shape[1]");
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
  bad.key = Tensor({3, 5, 1, 4});
  ExpectRefused(bad, "key.shape[2]");
  bad = good;
  bad.key = Tensor({3, 5, 2, 8});
  ExpectRefused(bad, "key.shape[3]");
  bad = good;
  bad.value = Tensor({3, 6, 2, 4});
  ExpectRefused(bad, "value.shape[1]");
}

// ---- sequences ---------------------------------------------------------------------------------

TEST(ResolveSequencesTest, LengthsMustAddUp) {
  ExpectRefusedAfter([](auto& r) { r.query_lengths = {2, 3}; }, "query_lengths");
  ExpectRefusedAfter([](auto& r) { r.query_lengths = {2, 5}; }, "query_lengths[1]");
  ExpectRefusedAfter([](auto& r) { r.query_lengths = {6, 0}; }, "query_lengths[1]");
  ExpectRefusedAfter([](auto& r) { r.query_lengths = {0, 6}; }, "query_lengths[0]");
  ExpectRefusedAfter([](auto& r) { r.query_lengths = {-1, 7}; }, "query_lengths[0]");
  ExpectRefusedAfter(
      [](auto& r) {
        r.query_lengths = {3, 3};
        r.key_lengths = {3, 2};
      },
      "key_lengths");
  ExpectRefusedAfter(
      [](auto& r) {
        r.query_lengths = {3, 3};
        r.key_lengths = {6, 0};
      },
      "key_lengths[1]");
}

TEST(ResolveSequencesTest, LengthsThatWrap) {
  // Their sum modulo 2^64 is 6.
  ExpectRefusedAfter(
      [](auto& r) {
        r.query_lengths = {kHuge, kHuge, kHuge, kHuge, 6};
      },
      "query_lengths[0]");
  ExpectRefusedAfter(
      [](auto& r) {
        r.query_lengths = {1, std::numeric_limits<int64_t>::max()};
      },
      "query_lengths[1]");
}

TEST(ResolveSequencesTest, AsManyKeySequencesAsQuerySequences) {
  ExpectRefusedAfter(
      [](auto& r) {
        r.query_lengths = {3, 3};
        r.key_lengths = {6};
      },
      "key_lengths");
  ExpectRefusedAfter([](auto& r) { r.key_lengths = {3, 3}; }, "key_lengths");
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

// ---- scalars -----------------------------------------------------------------------------------

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

TEST(ResolveScalarTest, CausalNeedsEqualLengths) {
  AttentionRequest request = Packed(6, 2, 4);
  request.kernel = Vanilla{.causal = true};
  EXPECT_TRUE(Resolve(request).ok());
  request.query_lengths = {2, 4};
  request.key_lengths = {4, 2};  // as many tokens in all
  ExpectRefused(request, "vanilla.causal");
  request = Packed(6, 2, 4);
  request.key = request.value = Tensor({9, 2, 4});
  request.kernel = Vanilla{.causal = true};
  ExpectRefused(request, "vanilla.causal");
}

// ---- kernels -----------------------------------------------------------------------------------

template <typename K>
void ExpectKernelRefused(K kernel, std::string_view field) {
  ExpectRefusedAfter([&](auto& r) { r.kernel = kernel; }, field);
}

void ExpectNotServed(Kernel kernel) {
  AttentionRequest request = Packed(6, 2, 4);
  request.kernel = std::move(kernel);
  const auto resolved = Resolve(request);
  EXPECT_EQ(ReasonOf(resolved.status()), Reason::kNotServed) << resolved.status();
}

template <typename K>
K With(void (*change)(K&)) {
  K kernel;
  change(kernel);
  return kernel;
}

template <typename K>
void ExpectClusteringRanges(const std::string& name) {
  ExpectKernelRefused(With<K>([](K& k) { k.clusters = 0; }), name + ".clusters");
  ExpectKernelRefused(With<K>([](K& k) { k.clusters = -1; }), name + ".clusters");
  ExpectKernelRefused(With<K>([](K& k) { k.clusters = 65537; }), name + ".clusters");
  ExpectKernelRefused(With<K>([](K& k) { k.iterations = 0; }), name + ".iterations");
  ExpectKernelRefused(With<K>([](K& k) { k.iterations = 1001; }), name + ".iterations");
  ExpectKernelRefused(With<K>([](K& k) { k.bits = 0; }), name + ".bits");
  ExpectKernelRefused(With<K>([](K& k) { k.bits = 65; }), name + ".bits");
  ExpectNotServed(With<K>([](K& k) {
    k.clusters = 65536;
    k.iterations = 1000;
    k.bits = 64;
  }));
  ExpectNotServed(With<K>([](K& k) { k.clusters = k.iterations = k.bits = 1; }));
}

TEST(ResolveKernelTest, ClusteredParameters) { ExpectClusteringRanges<Clustered>("clustered"); }

TEST(ResolveKernelTest, ImprovedClusteredParameters) {
  using K = ImprovedClustered;
  ExpectClusteringRanges<K>("improved_clustered");
  ExpectKernelRefused(With<K>([](K& k) { k.topk = 0; }), "improved_clustered.topk");
  ExpectKernelRefused(With<K>([](K& k) { k.topk = 1025; }), "improved_clustered.topk");
  ExpectNotServed(With<K>([](K& k) { k.topk = 1024; }));
}

Cast GoodCast() {
  Cast cast;
  cast.surrogates = Tensor({3, 2, 4});
  cast.gate = Tensor({6});
  return cast;
}

TEST(ResolveKernelTest, CastParameters) {
  ExpectNotServed(GoodCast());
  Cast cast = GoodCast();
  cast.surrogates = std::string();
  ExpectKernelRefused(cast, "cast.layer");
  cast = GoodCast();
  cast.surrogates = Tensor({3, 2, 4}, DType::kFloat16);
  ExpectKernelRefused(cast, "cast.surrogate_tokens.dtype");
  cast.surrogates = Tensor({6, 4});
  ExpectKernelRefused(cast, "cast.surrogate_tokens.shape");
  cast.surrogates = Tensor({3, 1, 4});
  ExpectKernelRefused(cast, "cast.surrogate_tokens.shape[1]");
  cast.surrogates = Tensor({3, 2, 5});
  ExpectKernelRefused(cast, "cast.surrogate_tokens.shape[2]");
  cast.surrogates = Hollow({3, 2, 4});
  ExpectKernelRefused(cast, "cast.surrogate_tokens.raw");
  cast.surrogates = Hollow({0, 2, 4});
  ExpectKernelRefused(cast, "cast.surrogate_tokens.shape[0]");
  cast = GoodCast();
  cast.gate = Tensor({6}, DType::kFloat16);
  ExpectKernelRefused(cast, "cast.gate.dtype");
  cast.gate = Tensor({6, 1});
  ExpectKernelRefused(cast, "cast.gate.shape");
  cast.gate = Tensor({5});
  ExpectKernelRefused(cast, "cast.gate.shape[0]");
  cast.gate = Hollow({6});
  ExpectKernelRefused(cast, "cast.gate.raw");
  cast = GoodCast();
  cast.cluster_size = -1;
  ExpectKernelRefused(cast, "cast.cluster_size");
}

TEST(ResolveKernelTest, CastNamesALayerOfTheRightShape) {
  static constexpr Variant kAll[] = {{KernelName::kCast, "test", &AnySpec, &NoRun}};
  const std::vector<float> surrogates(3 * 2 * 4);
  CastLayers layers;
  layers.Add("model/0", std::make_shared<const CastLayer>(surrogates.data(), 3, 2, 4));
  layers.Add("model/1", std::make_shared<const CastLayer>(surrogates.data(), 3, 4, 2));
  AttentionRequest request = Packed(6, 2, 4);
  Cast cast = GoodCast();
  cast.surrogates = std::string("model/0");
  request.kernel = cast;
  const auto resolved = Resolve(request, kAll, layers, kMaxSequences);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.surrogates, 3);
  EXPECT_EQ(resolved->cast_layer, *layers.Find("model/0"));

  cast.surrogates = std::string("model/1");
  request.kernel = cast;
  EXPECT_EQ(FieldOf(Resolve(request, kAll, layers, kMaxSequences).status()), "cast.layer");
  cast.surrogates = std::string("model/2");
  request.kernel = cast;
  EXPECT_EQ(ReasonOf(Resolve(request, kAll, layers, kMaxSequences).status()),
            Reason::kModelNotFound);

  // A layer's surrogate tokens count for the places of single assignment too.
  cast.surrogates = std::string("model/0");
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  cast.cluster_size = 1;
  request.kernel = cast;
  EXPECT_EQ(FieldOf(Resolve(request, kAll, layers, kMaxSequences).status()), "cast.cluster_size");
}

TEST(ResolveKernelTest, CastIsSelfAttention) {
  AttentionRequest request = Packed(6, 2, 4);
  request.kernel = GoodCast();
  request.query_lengths = {2, 4};
  request.key_lengths = {4, 2};
  ExpectRefused(request, "cast");
}

TEST(ResolveKernelTest, SingleAssignmentNeedsAPlaceForEveryToken) {
  Cast cast = GoodCast();
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  ExpectNotServed(cast);  // the default size has room
  cast.cluster_size = 2;
  ExpectNotServed(cast);
  cast.cluster_size = 1;
  ExpectKernelRefused(cast, "cast.cluster_size");
  cast.clustering = Cast::Clustering::kTopK;
  ExpectNotServed(cast);
}

TEST(ResolveKernelTest, CastLeavesItsTensors) {
  static constexpr Variant kAll[] = {{KernelName::kCast, "test", &AnySpec, &NoRun}};
  AttentionRequest request = Packed(6, 2, 4);
  request.kernel = GoodCast();
  const auto resolved = Resolve(request, kAll, CastLayers(), kMaxSequences);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const Cast& cast = std::get<Cast>(resolved->spec.kernel);
  EXPECT_TRUE(cast.gate.pieces.empty());
  EXPECT_TRUE(std::get<TensorInput>(cast.surrogates).pieces.empty());
  EXPECT_EQ(resolved->staging_bytes, 4 * (4 * 6 * 2 * 4 + 3 * 2 * 4 + 6));
}

TEST(ResolveKernelTest, AutomaticIsVanillaWhereAllowed) {
  AttentionRequest request = Packed(6, 2, 4);
  for (const Automatic& automatic :
       {Automatic{}, Automatic{{}, 0.5}, Automatic{{KernelName::kVanilla}, 0},
        Automatic{{KernelName::kCast, KernelName::kClustered, KernelName::kVanilla}, 1}}) {
    request.kernel = automatic;
    const auto resolved = Resolve(request);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_TRUE(std::holds_alternative<Vanilla>(resolved->spec.kernel));
  }
}

TEST(ResolveKernelTest, AutomaticWithoutAnExactChoice) {
  ExpectKernelRefused(Automatic{{KernelName::kClustered}, 0}, "automatic.allowed");
  ExpectKernelRefused(Automatic{{KernelName::kCast}, 0.1}, "automatic.allowed");
  ExpectNotServed(Automatic{{KernelName::kClustered}, 0.1});
  ExpectNotServed(Automatic{{KernelName::kCast, KernelName::kImprovedClustered}, 0.1});
}

TEST(ResolveKernelTest, AutomaticError) {
  for (const double bad : {-0.1, 1.1, double{NAN}, double{INFINITY}}) {
    ExpectKernelRefused(Automatic{{}, bad}, "automatic.max_relative_error");
  }
}

TEST(ResolveKernelTest, ARowThatCannotIsNotAvailable) {
  static constexpr Variant kSome[] = {{KernelName::kVanilla, "test", &Float32Only, &NoRun}};
  AttentionRequest request;
  request.query = request.key = request.value = Tensor({6, 2, 4}, DType::kFloat16);
  const auto resolved = Resolve(request, kSome, CastLayers(), kMaxSequences);
  EXPECT_EQ(ReasonOf(resolved.status()), Reason::kKernelNotAvailable) << resolved.status();
  request.query = request.key = request.value = Tensor({6, 2, 4});
  EXPECT_TRUE(Resolve(request, kSome, CastLayers(), kMaxSequences).ok());
}

}  // namespace
}  // namespace castor::attention
