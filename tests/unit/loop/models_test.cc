// Names of models: with slashes, several of one model, and none.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/forecast/encoder_costs.h"
#include "engine/residents/model_list.h"
#include "tests/unit/loop/approximate_device.h"
#include "tests/unit/loop/engine_fixture.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

LoadedModel Layers(const std::string& name, size_t count) {
  LoadedModel model;
  model.info.name = name;
  const float surrogates[1] = {};
  for (size_t i = 0; i < count; ++i) {
    model.cast_layers.push_back(std::make_shared<const attention::CastLayer>(surrogates, 1, 1, 1));
  }
  return model;
}

LoadedModel Encoder(const std::string& name, std::shared_ptr<const encoder::Model> encoder,
                    const std::string& alias_of = "") {
  LoadedModel model;
  model.info.name = name;
  model.info.alias_of = alias_of;
  model.encoder = std::move(encoder);
  return model;
}

ModelPtr Shared(LoadedModel model) { return std::make_shared<const LoadedModel>(std::move(model)); }

// "m/0" is a layer of one and the name of another.
TEST(ModelListTest, LayersOfNamesWithSlashesAreToldApart) {
  const LoadedModel m = Layers("m", 2), m0 = Layers("m/0", 1);
  const ModelList set({Shared(m), Shared(m0)});
  const auto find = [&](const char* name) {
    const auto layer = set.FindCastLayer(name);
    return layer.ok() ? layer->get() : nullptr;
  };
  EXPECT_EQ(find("m/0"), m.cast_layers[0].get());
  EXPECT_EQ(find("m/1"), m.cast_layers[1].get());
  EXPECT_EQ(find("m/0/0"), m0.cast_layers[0].get());
  for (const char* none : {"m", "m/2", "m/0/1", "0", "m/"}) EXPECT_EQ(find(none), nullptr) << none;
}

TEST(ModelListTest, NamesOfOneModelAreOneModel) {
  const auto one = std::make_shared<FakeModel>("org/one"), two = std::make_shared<FakeModel>("two");
  std::vector<ModelPtr> models = {
      Shared(Encoder("org/one", one)), Shared(Encoder("a", one, "org/one")),
      Shared(Encoder("z", one, "org/one")), Shared(Layers("layers", 1))};
  const ModelList single(models);
  EXPECT_EQ((*single.FindEncoder(""))->info.name, "org/one");
  EXPECT_EQ((*single.FindEncoder("z"))->info.name, "z");
  models.push_back(Shared(Encoder("two", two)));
  const ModelList several(models);
  EXPECT_FALSE(several.FindEncoder("").ok());
}

// What the engine runs before the first request, and what happens to the start when that fails.

class EngineWarmUpTest : public EngineFixture {
 protected:
  EngineWarmUpTest() {
    warm_up_ = true;
    options_.models = {{"fake-model", "there"}};
  }
};

TEST_F(EngineWarmUpTest, RunsModelsAndKernelsAndCountsNothing) {
  Start();
  // The model: one short sequence first, then texts, then six shapes twice. The kernel: vanilla.
  const std::vector<Marks> batches = script_->batches();
  ASSERT_EQ(batches.size(), 15U);
  EXPECT_EQ(batches[1], Marks{'a'});  // "a beaver builds a dam"
  const EngineStats stats = engine_->stats();
  for (const WorkStats& work : stats.work) EXPECT_EQ(work.batches, 0U) << work.kernel;
  EXPECT_EQ(stats.load.inflight_requests, 0);
  EXPECT_EQ(stats.memory.host_in_use_bytes, 0);
  Submit(Request(1), 1);
  EXPECT_TRUE(answers_.Get(1).ok());
}

// However slow it is, a model runs as often as its costs need: without them admission would guess.
TEST_F(EngineWarmUpTest, ASlowModelIsMeasuredAllTheSame) {
  script_->SetHook([this](const Marks&) {
    clock_->Advance(std::chrono::seconds(10));
    return absl::OkStatus();
  });
  Start();
  EXPECT_EQ(script_->batches().size(), 2 + kEncoderTerms + 1)
      << "one, texts, the shapes; and a kernel, which has time of its own";
}

TEST_F(EngineWarmUpTest, AModelThatCannotRunIsNotServed) {
  script_->SetHook([](const Marks&) { return MakeError(Reason::kInternal, "no such primitive"); });
  const auto engine = TryStart(options_);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().message(), "model \"fake-model\" does not run: no such primitive");
}

TEST_F(EngineWarmUpTest, AModelWhoseRunThrowsIsNotServed) {
  struct Throwing : FakeModel {
    using FakeModel::FakeModel;
    absl::StatusOr<bool> PrepareSome(const EncodeRequest&, const encoder::Slice&,
                                     encoder::Prepared*) const override {
      throw std::bad_alloc();
    }
  };
  script_->make_model = [](const ModelSource& source) {
    return std::make_shared<Throwing>(source.name);
  };
  const auto engine = TryStart(options_);
  EXPECT_EQ(ReasonOf(engine.status()), Reason::kOutOfMemory);
  EXPECT_NE(engine.status().message().find("fake-model"), absl::string_view::npos);
}

TEST_F(EngineWarmUpTest, AVocabularyWithoutOurWordsIsServed) {
  struct Wordless : FakeModel {
    using FakeModel::FakeModel;
    absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                     encoder::Prepared* prepared) const override {
      if (!std::holds_alternative<TextInput>(request.input)) {
        return FakeModel::PrepareSome(request, slice, prepared);
      }
      return InvalidField("texts.texts[0]", "has no tokens");
    }
  };
  script_->make_model = [](const ModelSource& source) {
    return std::make_shared<Wordless>(source.name);
  };
  const auto engine = TryStart(options_);
  EXPECT_TRUE(engine.ok()) << engine.status();
}

TEST(KernelWarmUpTest, EachKernelRunsOnceAndOneThatCannotEndsTheStart) {
  const auto script = std::make_shared<ApproximateScript>();
  const auto start = [&] {
    EngineParts parts;
    parts.open_device = [script](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<ApproximateDevice>(script);
    };
    parts.warm_up = true;
    parts.clock = std::make_shared<FakeClock>();  // the budget never ends
    EngineOptions options;
    options.cost_model_budget = std::chrono::milliseconds(0);
    return CreateEngineWithParts(options, std::move(parts));
  };
  EXPECT_TRUE(start().ok());
  const std::vector<int64_t> one_request = {256};
  EXPECT_EQ(script->launches(), (std::vector<ApproximateLaunch>{
                                    {KernelName::kVanilla, one_request},
                                    {KernelName::kClustered, one_request},
                                    {KernelName::kImprovedClustered, one_request},
                                }));
  script->SetHook([](const ApproximateLaunch& launch) {
    return launch.kernel == KernelName::kClustered ? MakeError(Reason::kInternal, "a bad opcode")
                                                   : absl::OkStatus();
  });
  EXPECT_EQ(start().status().message(),
            "the kernel clustered in FLOAT32 does not run: a bad opcode");
}

}  // namespace
}  // namespace castor
