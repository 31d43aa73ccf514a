// Models that come and go while the engine runs.

#include "engine/residents/residents.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/residents/model_root.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/loop/engine_fixture.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

using std::chrono::seconds;

constexpr int64_t kElements = 1000;
constexpr int64_t kBytes = 4 * kElements;

// Says that it takes as many bytes as its files, and how often such a model is alive.
class CountedModel : public FakeModel {
 public:
  CountedModel(std::string name, std::shared_ptr<std::atomic<int>> alive)
      : FakeModel(name), alive_(std::move(alive)), described_(FakeModel::info()) {
    described_.weight_bytes = kBytes;
    ++*alive_;
  }
  ~CountedModel() override { --*alive_; }
  const ModelInfo& info() const override { return described_; }

 private:
  const std::shared_ptr<std::atomic<int>> alive_;
  ModelInfo described_;
};

class ResidentsTest : public EngineFixture {
 protected:
  ResidentsTest() {
    options_.catalog = {.control = ModelControl::kExplicit, .root = root_.path()};
    script_->make_model = [this](const ModelSource& source) {
      return std::make_shared<CountedModel>(source.name, alive_);
    };
    for (const char* name : {"a", "b", "c"}) MakeFolder(name);
  }
  // Completions may come until the engine is gone.
  ~ResidentsTest() override {
    script_->Open();
    engine_.reset();
  }

  void MakeFolder(const std::string& name, int64_t elements = kElements) {
    std::filesystem::create_directories(root_ / name);
    std::ofstream(root_ / (name + "/config.json")) << "{}";
    std::string header = R"({"t":{"dtype":"F32","shape":[)" + std::to_string(elements) +
                         R"(],"data_offsets":[0,)" + std::to_string(4 * elements) + "]}}";
    const uint64_t size = header.size();
    std::ofstream file(root_ / (name + "/model.safetensors"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << header;
  }

  // Calls `start` with a completion, and waits for it.
  template <typename Start>
  absl::Status Await(Start start) {
    std::promise<absl::Status> told;
    start([&told](const absl::Status& status) { told.set_value(status); });
    return told.get_future().get();
  }
  absl::Status Load(const std::string& name, const std::string& folder = "", bool replace = false) {
    return Await(
        [&](ModelCompletion done) { engine_->LoadModel(name, folder, replace, std::move(done)); });
  }
  absl::Status Unload(const std::string& name) {
    return Await([&](ModelCompletion done) { engine_->UnloadModel(name, std::move(done)); });
  }
  ModelStatus StatusOf(const std::string& name) {
    for (ModelStatus& status : engine_->model_statuses()) {
      if (status.name == name) return std::move(status);
    }
    return {};
  }
  std::vector<std::string> Loaded() {
    std::vector<std::string> names;
    for (const ModelInfo& model : *engine_->models()) names.push_back(model.name);
    return names;
  }

  EncodeRequest Ids(const std::string& model, int64_t first = 1) {
    EncodeRequest request;
    request.model = model;
    TokenInput tokens;
    tokens.ids = {first, 2};
    tokens.lengths = {2};
    request.input = std::move(tokens);
    return request;
  }
  absl::Status Run(const std::string& model) {
    std::promise<absl::Status> told;
    auto ticket = engine_->Submit(
        Ids(model), [&](absl::StatusOr<EncodeResult> result) { told.set_value(result.status()); });
    return ticket.ok() ? told.get_future().get() : ticket.status();
  }
  // Holds a model by a request that does not end before script_->Open().
  void Hold(const std::string& model, int id) {
    const size_t batches = script_->batches().size();
    script_->Close();
    ASSERT_TRUE(engine_->Submit(Ids(model), encodings_.Slot(id)).ok());
    script_->WaitForBatches(batches + 1);
  }

  const TemporaryFolder root_;
  const std::shared_ptr<std::atomic<int>> alive_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(ResidentsTest, ModelsComeAndGo) {
  Start();
  EXPECT_EQ(StatusOf("a").state, ModelState::kUnloaded);
  EXPECT_EQ(ReasonOf(Run("a")), Reason::kModelNotFound);
  ASSERT_TRUE(Load("a").ok());
  ASSERT_TRUE(Load("other", "b").ok());
  EXPECT_EQ(Loaded(), (std::vector<std::string>{"a", "other"}));
  EXPECT_TRUE(Run("a").ok());
  EXPECT_TRUE(Run("other").ok());
  EXPECT_EQ(engine_->catalog_stats().weight_bytes, 2 * kBytes);
  ASSERT_TRUE(Load("a").ok()) << "it is there";
  EXPECT_EQ(StatusOf("a").loads, 1U);
  ASSERT_TRUE(Unload("a").ok());
  EXPECT_EQ(*alive_, 1);
  EXPECT_EQ(engine_->catalog_stats().weight_bytes, kBytes);
  EXPECT_EQ(ReasonOf(Run("a")), Reason::kModelNotFound);
  EXPECT_TRUE(Unload("a").ok()) << "it is gone";
}

TEST_F(ResidentsTest, NamesAndFoldersThatAreNoneAreRefused) {
  Start();
  std::filesystem::create_directories(root_ / "empty");
  std::filesystem::create_directory_symlink("loop", root_ / "loop");
  for (const char* name : {"", "..", "../a", "a/../b", "x y", "/etc"}) {
    EXPECT_EQ(FieldOf(Load(name)), "name") << name;
  }
  for (const char* folder : {"none", "empty", "loop", "..", ".", "a/b", "/"}) {
    EXPECT_EQ(ReasonOf(Load("m", folder)), Reason::kModelNotFound) << folder;
  }
  EXPECT_EQ(ReasonOf(Unload("none")), Reason::kModelNotFound);
  for (const ModelStatus& status : engine_->model_statuses()) {
    EXPECT_NE(status.name, "empty");
    EXPECT_NE(status.name, "loop");
  }
}

TEST_F(ResidentsTest, ModelsOfTheStartStay) {
  options_.models = {{"pinned", "there"}};
  Start();
  EXPECT_TRUE(StatusOf("pinned").pinned);
  EXPECT_EQ(ReasonOf(Unload("pinned")), Reason::kModelControlOff);
  EXPECT_EQ(ReasonOf(Load("pinned", "a", true)), Reason::kModelControlOff);
  EXPECT_EQ(Loaded(), std::vector<std::string>{"pinned"});
}

TEST_F(ResidentsTest, WithoutControlNothingIsLoaded) {
  options_.catalog = {};
  Start();
  EXPECT_EQ(ReasonOf(Load("a")), Reason::kModelControlOff);
  EXPECT_EQ(ReasonOf(Unload("a")), Reason::kModelControlOff);
  EXPECT_EQ(ReasonOf(engine_->NotLoaded("a")), Reason::kModelNotFound);
}

// A request that runs keeps its generation; those after it get the next one.
TEST_F(ResidentsTest, AReplacedModelEndsWithItsRequests) {
  Start();
  ASSERT_TRUE(Load("a").ok());
  const uint64_t first = engine_->models()->front().generation;
  EXPECT_EQ(FieldOf(Load("a", "b")), "directory") << "another folder needs `replace`";
  Hold("a", 1);
  ASSERT_TRUE(Load("a", "b", true).ok());
  const uint64_t second = engine_->models()->front().generation;
  EXPECT_NE(second, first);
  EXPECT_EQ(*alive_, 2);
  EXPECT_EQ(StatusOf("a").weight_bytes, 2 * kBytes);
  EncodeRequest old = Ids("a");
  old.generation = first;
  const absl::Status stale = engine_->Submit(std::move(old), encodings_.Slot(2)).status();
  EXPECT_EQ(ReasonOf(stale), Reason::kModelLoading);
  EXPECT_EQ(LoadingModelOf(stale), "a");
  script_->Open();
  EXPECT_TRUE(encodings_.Get(1).ok());
  encodings_.Clear();
  ASSERT_TRUE(Run("a").ok());
  EXPECT_NE(script_->encoders()[0], script_->encoders()[1]);
  ASSERT_TRUE(Unload("a").ok());
  while (engine_->catalog_stats().weight_bytes > 0) std::this_thread::yield();
  EXPECT_EQ(*alive_, 0);
}

TEST_F(ResidentsTest, TheModelThatWasUsedLeastRecentlyMakesRoom) {
  options_.catalog.weights_budget = 2 * kBytes;
  Start();
  ASSERT_TRUE(Load("a").ok());
  clock_->Advance(seconds(1));
  ASSERT_TRUE(Load("b").ok());
  clock_->Advance(seconds(1));
  ASSERT_TRUE(Run("a").ok());
  clock_->Advance(seconds(1));
  ASSERT_TRUE(Load("c").ok());
  EXPECT_EQ(Loaded(), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(*alive_, 2);
  EXPECT_EQ(engine_->catalog_stats().evictions, 1U);
}

TEST_F(ResidentsTest, AModelInUseIsNotUnloadedForAnother) {
  options_.catalog.weights_budget = kBytes + kBytes / 2;
  Start();
  ASSERT_TRUE(Load("a").ok());
  Hold("a", 1);
  const absl::Status refused = Load("b");
  EXPECT_EQ(ReasonOf(refused), Reason::kTooLarge);
  EXPECT_NE(refused.message().find(std::to_string(kBytes / 2) + " more"), std::string::npos)
      << refused;
  EXPECT_EQ(StatusOf("b").state, ModelState::kFailed);
  script_->Open();
  ASSERT_TRUE(encodings_.Get(1).ok());
  while (StatusOf("a").users > 0) std::this_thread::yield();
  EXPECT_TRUE(Load("b").ok());
  EXPECT_EQ(Loaded(), std::vector<std::string>{"b"});
}

TEST_F(ResidentsTest, AModelLargerThanTheBudgetIsRefusedAndUnloadsNothing) {
  options_.catalog.weights_budget = 2 * kBytes;
  MakeFolder("huge", 3 * kElements);
  MakeFolder("absurd", int64_t{1} << 60);
  Start();
  ASSERT_TRUE(Load("a").ok());
  EXPECT_EQ(ReasonOf(Load("huge")), Reason::kTooLarge);
  EXPECT_EQ(ReasonOf(Load("absurd")), Reason::kTooLarge);
  EXPECT_EQ(Loaded(), std::vector<std::string>{"a"});
}

TEST_F(ResidentsTest, TheBudgetIsSetAsideFromTheDevices) {
  options_.models = {{"pinned", "there"}};
  options_.max_device_bytes = 10 * kBytes;
  options_.catalog.weights_budget = kBytes / 2;
  EXPECT_EQ(FieldOf(TryStart(options_).status()), "weights_budget") << "below the pinned model";
  options_.catalog.weights_budget = 11 * kBytes;
  EXPECT_EQ(FieldOf(TryStart(options_).status()), "weights_budget");
  options_.catalog.weights_budget = 0;
  Start();
  EXPECT_EQ(engine_->catalog_stats().weights_budget, 5 * kBytes);
  EXPECT_EQ(engine_->stats().load.device_bytes, 5 * kBytes);
}

TEST_F(ResidentsTest, AnIdleModelIsUnloaded) {
  options_.catalog.idle_unload = seconds(60);
  Start();
  ASSERT_TRUE(Load("a").ok());
  ASSERT_TRUE(Load("b").ok());
  clock_->Advance(seconds(50));
  ASSERT_TRUE(Run("a").ok());
  while (StatusOf("a").users > 0) std::this_thread::yield();
  clock_->Advance(seconds(10));
  while (StatusOf("b").state != ModelState::kUnloaded) std::this_thread::yield();
  EXPECT_EQ(Loaded(), std::vector<std::string>{"a"});
  while (StatusOf("a").state != ModelState::kUnloaded) clock_->Advance(seconds(1));
}

TEST_F(ResidentsTest, ARequestWaitsForItsModel) {
  options_.catalog.control = ModelControl::kAuto;
  Start();
  const absl::Status missing = Run("a");
  EXPECT_EQ(ReasonOf(missing), Reason::kModelLoading);
  EXPECT_TRUE(RetryAfterOf(missing).has_value());
  EXPECT_EQ(ReasonOf(Run("none")), Reason::kModelNotFound);
  EXPECT_TRUE(Loaded().empty()) << "asking loads nothing";
  const auto await = [&](const std::string& name, TimePoint deadline) {
    return Await([&](ModelCompletion then) {
      std::promise<absl::Status> told;
      absl::Status status = engine_->AwaitModel(
          name, deadline, [&told](const absl::Status& loaded) { told.set_value(loaded); });
      std::move(then)(status.ok() ? told.get_future().get() : status);
    });
  };
  EXPECT_EQ(ReasonOf(await("none", TimePoint::max())), Reason::kModelNotFound);
  EXPECT_TRUE(await("a", TimePoint::max()).ok());
  EXPECT_TRUE(Run("a").ok());
  EXPECT_TRUE(await("a", clock_->Now()).ok()) << "it is there";
  // One that cannot wait is refused, but has the model loaded for the next.
  EXPECT_EQ(ReasonOf(await("b", clock_->Now())), Reason::kModelLoading);
  while (StatusOf("b").state != ModelState::kReady) std::this_thread::yield();
}

TEST_F(ResidentsTest, AModelThatDoesNotLoadIsTriedAgainLater) {
  options_.catalog.control = ModelControl::kAuto;
  std::atomic<bool> broken = true;
  script_->make_model = [&](const ModelSource& source) -> std::shared_ptr<encoder::Model> {
    if (broken) throw std::runtime_error("a file is torn");
    return std::make_shared<CountedModel>(source.name, alive_);
  };
  Start();
  const absl::Status failed = Load("a");
  EXPECT_EQ(ReasonOf(failed), Reason::kModelFailed);
  EXPECT_NE(failed.message().find("a file is torn"), std::string::npos);
  EXPECT_EQ(engine_->catalog_stats().weight_bytes, 0);
  broken = false;
  const absl::Status soon = Run("a");
  EXPECT_EQ(ReasonOf(soon), Reason::kModelFailed);
  clock_->Advance(*RetryAfterOf(soon));
  EXPECT_EQ(ReasonOf(Run("a")), Reason::kModelLoading);
  EXPECT_TRUE(Load("a").ok());
}

TEST_F(ResidentsTest, AModelThatDoesNotRunIsNotServed) {
  warm_up_ = true;
  Start();
  script_->SetHook(
      [](const FakeScript::Marks&) { return MakeError(Reason::kInternal, "no such primitive"); });
  const absl::Status failed = Load("a");
  EXPECT_EQ(ReasonOf(failed), Reason::kModelFailed);
  EXPECT_EQ(failed.message(), "model \"a\" does not run: no such primitive");
  EXPECT_TRUE(Loaded().empty());
  while (engine_->catalog_stats().weight_bytes > 0) std::this_thread::yield();
  EXPECT_EQ(*alive_, 0);
}

// Its first runs are those of a model of the start; no request and no statistics see them.
TEST_F(ResidentsTest, AModelIsTriedOutBeforeItIsServed) {
  warm_up_ = true;
  Start();
  const size_t before = script_->batches().size();
  ASSERT_TRUE(Load("a").ok());
  EXPECT_EQ(script_->batches().size(), before + 2 + kEncoderTerms);
  for (const WorkStats& work : engine_->stats().work) EXPECT_EQ(work.batches, 0U);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
}

TEST_F(ResidentsTest, ADrainAnswersAllThatWait) {
  options_.catalog.control = ModelControl::kAuto;
  Start();
  ASSERT_TRUE(Load("a").ok());
  Hold("a", 1);
  std::promise<absl::Status> unloaded;
  engine_->UnloadModel("a", [&](const absl::Status& status) { unloaded.set_value(status); });
  std::thread drain([&] { engine_->Drain(TimePoint::max()); });
  EXPECT_EQ(ReasonOf(unloaded.get_future().get()), Reason::kDraining);
  EXPECT_EQ(ReasonOf(Load("b")), Reason::kDraining);
  EXPECT_EQ(ReasonOf(engine_->NotLoaded("b")), Reason::kDraining) << "another server may load it";
  EXPECT_EQ(ReasonOf(engine_->NotLoaded("no folder")), Reason::kModelNotFound);
  script_->Open();
  EXPECT_TRUE(encodings_.Get(1).ok()) << "it was admitted";
  drain.join();
}

TEST_F(ResidentsTest, WeightsAreCountedByHeadersOfAllKinds) {
  const auto estimate = [&](const std::string& folder, DType dtype) {
    return EstimateWeightBytes({.name = "m", .directory = root_ / folder, .dtype = dtype});
  };
  EXPECT_EQ(*estimate("a", DType::kFloat32), kBytes);
  EXPECT_EQ(*estimate("a", DType::kBFloat16), kBytes / 2);
  MakeFolder("a/1_Dense");
  EXPECT_EQ(*estimate("a", DType::kFloat32), 2 * kBytes);
  for (const char* text : {"", "1234567", "\xff\xff\xff\xff\xff\xff\xff\x7f{}",
                           "\2\0\0\0\0\0\0\0[]", "\x0d\0\0\0\0\0\0\0{\"t\":{\"x\":1}}"}) {
    std::ofstream(root_ / "b/model.safetensors", std::ios::binary) << text;
    EXPECT_FALSE(estimate("b", DType::kFloat32).ok()) << text;
  }
}

}  // namespace
}  // namespace castor
