// Models that are replaced and removed while an engine serves them: every request ends with the
// model it was admitted with.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

// Adds `shift` to every id of a text.
class ShiftingModel : public FakeModel {
 public:
  ShiftingModel(std::string name, int64_t shift, std::promise<std::thread::id>* freed_on = nullptr)
      : FakeModel(std::move(name)), shift_(shift), freed_on_(freed_on) {}
  ~ShiftingModel() override {
    if (freed_on_ != nullptr) freed_on_->set_value(std::this_thread::get_id());
  }

  absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                   encoder::Prepared* prepared) const override {
    const auto done = FakeModel::PrepareSome(request, slice, prepared);
    for (int64_t& id : prepared->ids) id += shift_;
    return done;
  }

 private:
  const int64_t shift_;
  std::promise<std::thread::id>* const freed_on_;
};

LoadedModel Shifting(const std::string& name, int64_t shift) {
  LoadedModel model;
  model.encoder = std::make_shared<ShiftingModel>(name, shift);
  model.info = model.encoder->info();
  return model;
}

class EngineModelsTest : public EngineFixture {
 protected:
  void StartWithModel() {
    options_.models = {{"m", "present"}};
    Start();
  }

  // Returns once the request is tokenized and waits for the occupied device.
  void EncodeAndAwaitTurn(const std::string& text, int id) {
    const int64_t waiting = engine_->stats().load.queued_requests;
    Encode(text, id);
    while (engine_->stats().load.queued_requests == waiting) std::this_thread::yield();
  }

  void Encode(const std::string& text, int id) {
    auto ticket = engine_->Submit(TextRequest({text}), encodings_.Slot(id));
    ASSERT_TRUE(ticket.ok()) << ticket.status();
  }

  float Output(int id) {
    const auto& result = encodings_.Get(id);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->output.data.as<float>()[0] : 0;
  }
};

TEST_F(EngineModelsTest, ARequestEndsWithTheModelItWasAdmittedWith) {
  StartWithModel();
  Occupy();
  EncodeAndAwaitTurn("a", 1);
  EncodeAndAwaitTurn("b", 2);
  ASSERT_TRUE(models_->Replace(Shifting("m", 500)).ok());
  EncodeAndAwaitTurn("c", 3);
  EncodeAndAwaitTurn("d", 4);
  script_->Open();
  EXPECT_EQ(Output(1), 'a');
  EXPECT_EQ(Output(2), 'b');
  EXPECT_EQ(Output(3), 500 + 'c');
  EXPECT_EQ(Output(4), 500 + 'd');
  // They share no batch, although the models' names are the same.
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {'a', 'b'}, {500 + 'c', 500 + 'd'}}));
  const auto encoders = script_->encoders();
  ASSERT_EQ(encoders.size(), 2u);
  EXPECT_NE(encoders[0], encoders[1]);
}

TEST_F(EngineModelsTest, ARemovedModelServesWhatItHasAdmitted) {
  StartWithModel();
  Occupy();
  EncodeAndAwaitTurn("a", 1);
  const EngineInfo before = engine_->info();
  ASSERT_TRUE(models_->Remove("m").ok());
  const auto refused = engine_->Submit(TextRequest({"b"}), encodings_.Slot(2));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kModelNotFound);
  EXPECT_TRUE(engine_->info().models.empty());
  ASSERT_EQ(before.models.size(), 1u);
  EXPECT_EQ(before.models[0].name, "m");
  script_->Open();
  EXPECT_EQ(Output(1), 'a');
  EXPECT_EQ(encodings_.Get(1)->model, "m");
}

TEST_F(EngineModelsTest, TheEngineThreadFreesAModelAfterItsLastRequest) {
  std::promise<std::thread::id> freed_on;
  std::thread::id engine_thread;
  script_->make_model = [&](const ModelSource& source) {
    engine_thread = std::this_thread::get_id();
    return std::make_shared<ShiftingModel>(source.name, 0, &freed_on);
  };
  StartWithModel();
  Occupy();
  EncodeAndAwaitTurn("a", 1);
  ASSERT_TRUE(models_->Remove("m").ok());
  script_->Open();
  EXPECT_EQ(Output(1), 'a');
  // The next request finds the memory free.
  Submit(Request(2), 2);
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(freed_on.get_future().get(), engine_thread);
}

}  // namespace
}  // namespace castor
