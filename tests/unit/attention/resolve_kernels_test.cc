// A request's kernel and its parameters: what Resolve accepts, refuses, and does not serve.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/attention/resolve_fixture.h"

namespace castor::attention {
namespace {

constexpr Variant kCastOnly[] = {{KernelName::kCast, "test", &AnySpec, &NoRun}};

bool Float32Only(const Spec& spec) { return spec.dtype == DType::kFloat32; }

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
  // Parameters of a hash are refused, not ignored, if no hash is made.
  ExpectKernelRefused(With<K>([](K& k) {
                        k.clustering = K::Clustering::kQuerySpace;
                        k.bits = 62;
                      }),
                      name + ".bits");
  ExpectKernelRefused(With<K>([](K& k) {
                        k.clustering = K::Clustering::kQuerySpace;
                        k.hash_bias = false;
                      }),
                      name + ".hash_bias");
  ExpectNotServed(With<K>([](K& k) { k.clustering = K::Clustering::kQuerySpace; }));
}

TEST(ResolveKernelTest, ClusteredParameters) { ExpectClusteringRanges<Clustered>("clustered"); }

TEST(ResolveKernelTest, ImprovedClusteredParameters) {
  using K = ImprovedClustered;
  ExpectClusteringRanges<K>("improved_clustered");
  ExpectKernelRefused(With<K>([](K& k) { k.topk = 0; }), "improved_clustered.topk");
  ExpectKernelRefused(With<K>([](K& k) { k.topk = 1025; }), "improved_clustered.topk");
  ExpectNotServed(With<K>([](K& k) { k.topk = 1024; }));
  for (const int32_t groups : {0, 65}) {
    K kernel;
    kernel.rest_mass = K::RestMass::kQuery;
    kernel.rest_groups = groups;
    ExpectKernelRefused(kernel, "improved_clustered.rest_groups");
  }
  ExpectKernelRefused(With<K>([](K& k) { k.rest_groups = 2; }), "improved_clustered.rest_groups");
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
  const std::vector<float> surrogates(3 * 2 * 4);
  const auto layer = std::make_shared<const CastLayer>(surrogates.data(), 3, 2, 4);
  const auto turned = std::make_shared<const CastLayer>(surrogates.data(), 3, 4, 2);
  const auto layers = [&](std::string_view name) -> decltype(NoCastLayer(name)) {
    if (name == "model/0") return layer;
    if (name == "model/1") return turned;
    return NoCastLayer(name);
  };
  AttentionRequest request = Packed(6, 2, 4);
  Cast cast = GoodCast();
  cast.surrogates = std::string("model/0");
  request.kernel = cast;
  const auto resolved = Resolve(request, kCastOnly, layers, kMaxSequences);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.surrogates, 3);
  EXPECT_EQ(resolved->cast_layer, layer);

  cast.surrogates = std::string("model/1");
  request.kernel = cast;
  EXPECT_EQ(FieldOf(Resolve(request, kCastOnly, layers, kMaxSequences).status()), "cast.layer");
  cast.surrogates = std::string("model/2");
  request.kernel = cast;
  EXPECT_EQ(ReasonOf(Resolve(request, kCastOnly, layers, kMaxSequences).status()),
            Reason::kModelNotFound);

  // A layer's surrogate tokens also count when places for single assignment are checked.
  cast.surrogates = std::string("model/0");
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  cast.cluster_size = 1;
  request.kernel = cast;
  EXPECT_EQ(FieldOf(Resolve(request, kCastOnly, layers, kMaxSequences).status()),
            "cast.cluster_size");
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
  ExpectNotServed(cast);  // the default size has enough places
  cast.cluster_size = 2;
  ExpectNotServed(cast);
  cast.cluster_size = 1;
  ExpectKernelRefused(cast, "cast.cluster_size");
  cast.clustering = Cast::Clustering::kTopK;
  ExpectNotServed(cast);
}

TEST(ResolveKernelTest, CastLeavesItsTensors) {
  AttentionRequest request = Packed(6, 2, 4);
  request.kernel = GoodCast();
  const auto resolved = Resolve(request, kCastOnly, NoCastLayer, kMaxSequences);
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

// Rows like those of a GPU.
bool OnlyThePaper(const Spec& spec) { return OptionBeyondThePaper(spec.kernel).empty(); }
constexpr Variant kPaperOnly[] = {
    {KernelName::kClustered, "test", &OnlyThePaper, &NoRun},
    {KernelName::kImprovedClustered, "test", &OnlyThePaper, &NoRun},
};

TEST(ResolveKernelTest, AnOptionThatADeviceLacksIsNamed) {
  AttentionRequest request = Packed(6, 2, 4);
  const auto refusal = [&](Kernel kernel) {
    request.kernel = std::move(kernel);
    const absl::Status status = Resolve(request, kPaperOnly, NoCastLayer, kMaxSequences).status();
    EXPECT_TRUE(status.ok() || ReasonOf(status) == Reason::kKernelNotAvailable) << status;
    return std::string(status.message().substr(0, status.message().find(':')));
  };
  EXPECT_EQ(refusal(Clustered{}), "");
  EXPECT_EQ(refusal(ImprovedClustered{}), "");
  EXPECT_EQ(refusal(With<Clustered>(
                [](Clustered& k) { k.clustering = Clustered::Clustering::kQuerySpace; })),
            "clustered.clustering");
  using K = ImprovedClustered;
  EXPECT_EQ(refusal(With<K>([](K& k) { k.clustering = K::Clustering::kQuerySpace; })),
            "improved_clustered.clustering");
  EXPECT_EQ(refusal(With<K>([](K& k) { k.rest_mass = K::RestMass::kQuery; })),
            "improved_clustered.rest_mass");
  // The kernel is missing if it has no row.
  ExpectNotServed(With<K>([](K& k) { k.rest_mass = K::RestMass::kQuery; }));
}

bool NoLogSumExp(const Spec& spec) { return !spec.log_sum_exp; }

TEST(ResolveKernelTest, LogSumExpIsOfTheRowsThatReturnIt) {
  AttentionRequest request = Packed(6, 2, 4);
  const auto plain = Resolve(request);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->spec.log_sum_exp);
  request.return_log_sum_exp = true;
  const auto resolved = Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->spec.log_sum_exp);
  EXPECT_EQ(resolved->staging_bytes, plain->staging_bytes + 6 * 2 * 4);

  constexpr Variant kWithout[] = {{KernelName::kVanilla, "test", &NoLogSumExp, &NoRun}};
  const auto refused = Resolve(request, kWithout, NoCastLayer, kMaxSequences);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kKernelNotAvailable);
  EXPECT_EQ(refused.status().message().find("return_log_sum_exp: the kernel vanilla"), 0U)
      << refused.status();
}

TEST(ResolveKernelTest, CastHasNoLogSumExp) {
  ExpectRefusedAfter(
      [](auto& request) {
        request.kernel = GoodCast();
        request.return_log_sum_exp = true;
      },
      "return_log_sum_exp");
}

TEST(ResolveKernelTest, ARowThatCannotIsNotAvailable) {
  static constexpr Variant kSome[] = {{KernelName::kVanilla, "test", &Float32Only, &NoRun}};
  AttentionRequest request;
  request.query = request.key = request.value = Tensor({6, 2, 4}, DType::kFloat16);
  const auto resolved = Resolve(request, kSome, NoCastLayer, kMaxSequences);
  EXPECT_EQ(ReasonOf(resolved.status()), Reason::kKernelNotAvailable) << resolved.status();
  request.query = request.key = request.value = Tensor({6, 2, 4});
  EXPECT_TRUE(Resolve(request, kSome, NoCastLayer, kMaxSequences).ok());
}

}  // namespace
}  // namespace castor::attention
