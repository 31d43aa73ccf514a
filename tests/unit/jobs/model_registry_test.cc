// Models that are added, removed and replaced while others still hold them.
#include "engine/jobs/model_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "engine/requests/batch_key.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

// Records on which thread it was freed.
class MortalModel : public FakeModel {
 public:
  MortalModel(std::string name, std::thread::id* freed_on)
      : FakeModel(std::move(name)), freed_on_(freed_on) {}
  ~MortalModel() override { *freed_on_ = std::this_thread::get_id(); }

 private:
  std::thread::id* const freed_on_;
};

LoadedModel Encoder(const std::string& name) {
  LoadedModel model;
  model.encoder = std::make_shared<FakeModel>(name);
  model.info = model.encoder->info();
  return model;
}

// CAST layers with one head of two dimensions and the given numbers of surrogate tokens.
LoadedModel Layers(const std::string& name, const std::vector<int64_t>& surrogate_tokens) {
  LoadedModel model;
  model.info.name = name;
  for (const int64_t tokens : surrogate_tokens) {
    const std::vector<float> surrogates(tokens * 2, static_cast<float>(tokens));
    model.cast_layers.push_back(
        std::make_shared<const attention::CastLayer>(surrogates.data(), tokens, 1, 2));
  }
  return model;
}

TEST(ModelRegistryTest, NoGenerationComesTwice) {
  ModelRegistry registry;
  EXPECT_EQ(*registry.Add(Encoder("a")), 1u);
  EXPECT_EQ(*registry.Add(Encoder("b")), 2u);
  EXPECT_EQ(*registry.Replace(Encoder("a")), 3u);
  EXPECT_TRUE(registry.Remove("a").ok());
  EXPECT_EQ(*registry.Add(Encoder("a")), 4u);
  const auto models = registry.Snapshot();
  ASSERT_EQ(models->all().size(), 2u);
  EXPECT_EQ(models->all()[0]->info.name, "a");
  EXPECT_EQ(models->all()[0]->generation, 4u);
  EXPECT_EQ(models->all()[1]->generation, 2u);
  registry.Clear();
  EXPECT_EQ(*registry.Add(Encoder("a")), 5u);
}

TEST(ModelRegistryTest, RefusesWhatDoesNotFit) {
  ModelRegistry registry;
  ASSERT_TRUE(registry.Add(Encoder("a")).ok());
  EXPECT_EQ(FieldOf(registry.Add(Encoder("a")).status()), "name");
  EXPECT_EQ(ReasonOf(registry.Replace(Encoder("b")).status()), Reason::kModelNotFound);
  EXPECT_EQ(ReasonOf(registry.Remove("b")), Reason::kModelNotFound);
  EXPECT_EQ(registry.Snapshot()->all().size(), 1u);
  EXPECT_EQ(registry.Snapshot()->all()[0]->generation, 1u);
}

TEST(ModelRegistryTest, FindsEncoders) {
  ModelRegistry registry;
  const auto reason = [&](const std::string& name) {
    return ReasonOf(registry.Snapshot()->FindEncoder(name).status());
  };
  EXPECT_EQ(reason(""), Reason::kModelNotFound);
  ASSERT_TRUE(registry.Add(Layers("layers", {3})).ok());
  EXPECT_EQ(reason(""), Reason::kModelNotFound);
  EXPECT_EQ(reason("layers"), Reason::kKernelNotAvailable);
  ASSERT_TRUE(registry.Add(Encoder("a")).ok());
  EXPECT_EQ((*registry.Snapshot()->FindEncoder(""))->info.name, "a");
  EXPECT_EQ((*registry.Snapshot()->FindEncoder("a"))->info.name, "a");
  ASSERT_TRUE(registry.Add(Encoder("b")).ok());
  EXPECT_EQ(reason(""), Reason::kModelNotFound);
  EXPECT_EQ((*registry.Snapshot()->FindEncoder("b"))->info.name, "b");
  EXPECT_EQ(reason("c"), Reason::kModelNotFound);
}

TEST(ModelRegistryTest, ASnapshotStaysAsItWas) {
  ModelRegistry registry;
  ASSERT_TRUE(registry.Add(Encoder("a")).ok());
  const auto before = registry.Snapshot();
  ASSERT_TRUE(registry.Replace(Encoder("a")).ok());
  ASSERT_TRUE(registry.Add(Encoder("b")).ok());
  ASSERT_EQ(before->all().size(), 1u);
  EXPECT_EQ(before->all()[0]->generation, 1u);
  EXPECT_EQ((*registry.Snapshot()->FindEncoder("a"))->generation, 2u);
}

TEST(ModelRegistryTest, ARequestKeepsItsCastLayer) {
  constexpr attention::Variant kCast[] = {
      {KernelName::kCast, "test", [](const attention::Spec&) { return true; },
       [](const attention::Spec&, std::span<const attention::Problem>, RunControl&) {
         return absl::OkStatus();
       }}};
  const std::vector<float> data(6 * 2);
  const auto tensor = [&](std::vector<int64_t> shape, size_t elements) {
    return TensorInput{
        DType::kFloat32, std::move(shape), {std::as_bytes(std::span(data).first(elements))}};
  };
  AttentionRequest request;
  request.query = request.key = request.value = tensor({6, 1, 2}, 12);
  Cast cast;
  cast.surrogates = std::string("m/1");
  cast.gate = tensor({6}, 6);
  request.kernel = cast;
  ModelRegistry registry;
  const auto resolve = [&] {
    return *attention::Resolve(request, kCast, registry.Snapshot()->cast_layers(), 1);
  };

  ASSERT_TRUE(registry.Add(Layers("m", {2, 3})).ok());
  const attention::Resolved first = resolve();
  ASSERT_TRUE(registry.Replace(Layers("m", {5, 3})).ok());
  const attention::Resolved second = resolve();
  EXPECT_NE(first.cast_layer, second.cast_layer);
  EXPECT_NE(BatchKey(first.spec), BatchKey(second.spec));
  EXPECT_EQ(BatchKey(second.spec), BatchKey(resolve().spec));
  ASSERT_TRUE(registry.Remove("m").ok());
  EXPECT_EQ(first.cast_layer->surrogate_tokens(), 3);
  EXPECT_EQ(*reinterpret_cast<const float*>(first.cast_layer->data(DType::kFloat32)), 3);
  EXPECT_EQ(ReasonOf(registry.Snapshot()->cast_layers().Find("m/1").status()),
            Reason::kModelNotFound);
}

TEST(ModelRegistryTest, FreesAnEncoderWhereItIsTold) {
  std::thread::id freed_on;
  ModelRegistry registry;
  LoadedModel model;
  model.encoder = std::make_shared<MortalModel>("a", &freed_on);
  model.info = model.encoder->info();
  ASSERT_TRUE(registry.Add(std::move(model)).ok());
  // A batch holds no more of a model than this.
  auto encoder = (*registry.Snapshot()->FindEncoder("a"))->encoder;
  ASSERT_TRUE(registry.Remove("a").ok());
  registry.FreeUnused();
  EXPECT_EQ(freed_on, std::thread::id()) << "it is in use";
  std::thread([last = std::move(encoder)]() mutable { last.reset(); }).join();
  EXPECT_EQ(freed_on, std::thread::id()) << "freed by whoever came last";
  registry.FreeUnused();
  EXPECT_EQ(freed_on, std::this_thread::get_id());
}

// Mainly for ThreadSanitizer.
TEST(ModelRegistryTest, AnyThreadMayLookWhileModelsChange) {
  ModelRegistry registry;
  ASSERT_TRUE(registry.Add(Encoder("a")).ok());
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!done) {
        const auto model = registry.Snapshot()->FindEncoder("a");
        ASSERT_TRUE(model.ok());
        EXPECT_GE((*model)->generation, last);
        EXPECT_EQ((*model)->encoder->info().name, "a");
        last = (*model)->generation;
      }
    });
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(registry.Replace(Encoder("a")).ok());
    registry.FreeUnused();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(registry.Snapshot()->all()[0]->generation, 1001u);
}

}  // namespace
}  // namespace castor
