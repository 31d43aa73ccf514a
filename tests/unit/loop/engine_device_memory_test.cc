// The device's memory through the engine: a request that can never have enough is refused, and one
// that does not fit next to others waits for them.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Every token takes a mebibyte, and everything else little.
class EngineDeviceMemoryTest : public EngineFixture {
 protected:
  EngineDeviceMemoryTest() { FakeDevice::workspace_per_token = kMiB; }
  ~EngineDeviceMemoryTest() override {
    script_->Open();
    engine_.reset();
    FakeDevice::workspace_per_token = 0;
  }

  void StartWith(int64_t bytes) {
    options_.max_device_bytes = bytes;
    Start();
  }

  LoadStats Load() const { return engine_->stats().load; }
};

TEST_F(EngineDeviceMemoryTest, ARequestThatCouldNeverHaveEnoughIsTooLarge) {
  StartWith(10 * kMiB);
  EXPECT_EQ(engine_->info().max_device_bytes, 10 * kMiB);
  auto refused = engine_->Submit(Request(2, 10), answers_.Slot(2));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kTooLarge);
  EXPECT_NE(refused.status().message().find("--max-device-bytes"), std::string::npos);
  Submit(Request(3, 9), 3);
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_F(EngineDeviceMemoryTest, ThoseThatFitOnlyAloneRunOneAfterTheOther) {
  StartWith(10 * kMiB);
  Occupy();
  Submit(Request(2, 6), 2);
  Submit(Request(3, 6), 3);
  Submit(Request(4, 3), 4);
  EXPECT_EQ(Load().device_bytes / kMiB, 1) << "for the running request";
  script_->Open();
  for (const int id : {2, 3, 4}) EXPECT_TRUE(answers_.Get(id).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {2, 4}, {3}}));
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(Load().device_bytes, 0);
  EXPECT_EQ(Load().max_device_bytes, 10 * kMiB);
}

// A device that takes a second batch while one runs.
TEST_F(EngineDeviceMemoryTest, TheSecondInFlightWaitsUntilItFitsAndIsNotOvertaken) {
  script_->depth = 2;
  StartWith(10 * kMiB);
  script_->Close();
  Submit(Request(5, 7), 5);
  while (Load().device_bytes < 7 * kMiB) std::this_thread::yield();
  Submit(Request(6, 6, 2), 6);
  Submit(Request(7, 1), 7);
  script_->Open();
  for (const int id : {5, 6, 7}) EXPECT_TRUE(answers_.Get(id).ok());
  const auto batches = script_->batches();
  EXPECT_EQ(batches, (std::vector<Marks>{{5}, {6}, {7}}));
}

TEST_F(EngineDeviceMemoryTest, ModelsTakeTheirPartOfIt) {
  class HeavyModel : public FakeModel {
   public:
    explicit HeavyModel(std::string name) : FakeModel(name) {
      heavy_ = FakeModel::info();
      heavy_.weight_bytes = 6 * kMiB;
    }
    const ModelInfo& info() const override { return heavy_; }

   private:
    ModelInfo heavy_;
  };
  script_->make_model = [](const ModelSource& source) {
    return std::make_shared<HeavyModel>(source.name);
  };
  options_.max_device_bytes = 10 * kMiB;
  options_.models = {{"one", "present"}, {"two", "present"}};
  const auto both = TryStart(options_);
  EXPECT_EQ(ReasonOf(both.status()), Reason::kTooLarge);
  EXPECT_NE(both.status().message().find("\"two\""), std::string::npos) << both.status();
  options_.models.pop_back();
  Start();
  EXPECT_EQ(Load().device_bytes, 6 * kMiB);
  EXPECT_EQ(ReasonOf(engine_->Submit(Request(2, 4), answers_.Slot(2)).status()), Reason::kTooLarge);
  Submit(Request(3, 3), 3);
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_F(EngineDeviceMemoryTest, WeightsOfSeveralNamesAreLoadedOnce) {
  const TemporaryFolder folder, other;
  std::vector<std::string> loaded;
  script_->make_model = [&](const ModelSource& source) {
    loaded.push_back(source.name);
    return std::make_shared<FakeModel>(source.name);
  };
  options_.models = {{"org/model", folder.path()},
                     {"alias", folder / "."},
                     {"another", other.path()},
                     {"bfloat16", folder.path(), DType::kBFloat16}};
  Start();
  EXPECT_EQ(loaded, (std::vector<std::string>{"org/model", "another", "bfloat16"}));
  const ModelInfos models = *engine_->models();
  ASSERT_EQ(models.size(), 4U);
  EXPECT_EQ(models[0].name, "alias");
  EXPECT_EQ(models[0].alias_of, "org/model");
  for (size_t i = 1; i < models.size(); ++i) EXPECT_EQ(models[i].alias_of, "") << models[i].name;
}

// Including the last buffers of a burst, which return when the engine thread has no more work.
TEST_F(EngineDeviceMemoryTest, AnIdleEngineGivesItsStagingMemoryBack) {
  StartWith(1000 * kMiB);
  const auto memory = [&] { return engine_->stats().memory; };
  for (int id = 0; id < 40; ++id) Submit(Request(id, 20, 1, 1024), id);
  for (int id = 0; id < 40; ++id) EXPECT_TRUE(answers_.Get(id).ok());
  clock_->Advance(std::chrono::seconds(14));
  answers_.Clear();
  EXPECT_GT(memory().host_cached_bytes, 0) << "kept for the next burst";
  while (memory().host_cached_bytes > 0) {
    clock_->Advance(std::chrono::seconds(1));
    std::this_thread::yield();
  }
  EXPECT_EQ(memory().host_in_use_bytes, 0);
  Submit(Request(40, 20, 1, 1024), 40);
  EXPECT_TRUE(answers_.Get(40).ok());
}

}  // namespace
}  // namespace castor
