// Short requests that Submit prepares, runs or answers itself.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "tests/unit/loop/engine_fixture.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

class EngineTurnTest : public EngineFixture {
 protected:
  EngineTurnTest() {
    predict_ = [this](int64_t) { return PredictedTime{.own_us = predicted_us_}; };
  }

  // Submits a request that may run in Submit. Whether its answer came on this thread, before Submit
  // returned; if not, it is awaited.
  bool RunsInSubmit(int id) {
    AttentionRequest request = Request(id);
    request.call.may_run_in_submit = true;
    std::thread::id answered;
    auto slot = answers_.Slot(id);
    auto ticket =
        engine_->Submit(std::move(request), [&, slot](absl::StatusOr<AttentionResult> result) {
          answered = std::this_thread::get_id();
          slot(std::move(result));
        });
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    const bool before = answers_.count(id) == 1;
    (void)answers_.Get(id);
    return before && answered == std::this_thread::get_id();
  }

  // Submits requests, with ids from `id` on, until one runs in Submit: the engine thread goes to
  // sleep a moment after its last answer. Returns the id.
  int UntilOneRunsInSubmit(int id) {
    while (!RunsInSubmit(id)) {
      std::this_thread::yield();
      ++id;
    }
    return id;
  }

  // A model that says which thread has tokenized.
  class WatchedModel : public FakeModel {
   public:
    WatchedModel(std::string name, std::thread::id* tokenizer)
        : FakeModel(std::move(name)), tokenizer_(tokenizer) {}
    absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                     encoder::Prepared* prepared) const override {
      *tokenizer_ = std::this_thread::get_id();
      return FakeModel::PrepareSome(request, slice, prepared);
    }

   private:
    std::thread::id* const tokenizer_;
  };

  void StartWithModel() {
    script_->make_model = [this](const ModelSource& source) {
      return std::make_shared<WatchedModel>(source.name, &tokenizer_);
    };
    options_.models.push_back({"m", "present"});
    Start();
  }

  // The thread that calls the completion.
  std::thread::id Encode(EncodeRequest request, bool may_run_in_submit) {
    request.call.may_run_in_submit = may_run_in_submit;
    std::promise<std::thread::id> answered;
    auto ticket =
        engine_->Submit(std::move(request), [&](const absl::StatusOr<EncodeResult>& result) {
          EXPECT_TRUE(result.ok()) << result.status();
          answered.set_value(std::this_thread::get_id());
        });
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return answered.get_future().get();
  }

  double predicted_us_ = 1;
  std::thread::id tokenizer_;
};

TEST_F(EngineTurnTest, AnswersAsTheEngineThreadDoes) {
  Start();
  const int id = UntilOneRunsInSubmit(1);
  const auto& answer = answers_.Get(id);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output.data.as<float>()[0], 2.0f * static_cast<float>(id));
  EXPECT_EQ(answer->report.batch.requests, 1);
  EXPECT_EQ(script_->batches().size(), static_cast<size_t>(id));
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  answers_.Clear();
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
}

TEST_F(EngineTurnTest, LeavesLongRequestsToTheEngineThread) {
  predicted_us_ = 5000;
  Start();
  for (int id = 1; id <= 100; ++id) EXPECT_FALSE(RunsInSubmit(id));
}

TEST_F(EngineTurnTest, DelayedBatchesAreLeftToTheEngineThread) {
  options_.max_batch_requests = 1;  // full at once, so that the fake clock need not pass
  options_.batch_delay = std::chrono::milliseconds(1);
  Start();
  for (int id = 1; id <= 100; ++id) EXPECT_FALSE(RunsInSubmit(id));
}

// What arrives meanwhile waits for the engine thread, which waits for the turn.
TEST_F(EngineTurnTest, TheEngineThreadContinuesAfterTheTurn) {
  Start();
  std::thread::id runner;
  script_->SetHook([&](const Marks& marks) {
    if (marks.front() < 1000) {
      runner = std::this_thread::get_id();
      std::thread([&] { Submit(Request(1000 + marks.front()), 1000 + marks.front()); }).join();
    }
    return absl::OkStatus();
  });
  const int id = UntilOneRunsInSubmit(1);
  EXPECT_EQ(runner, std::this_thread::get_id());
  for (int other = 1001; other <= 1000 + id; ++other) EXPECT_TRUE(answers_.Get(other).ok());
}

TEST_F(EngineTurnTest, ARequestThatFailsIsRetriedAndTheNextOnesRun) {
  Start();
  int bad = UntilOneRunsInSubmit(1) + 1;
  script_->SetHook([&](const Marks& marks) {
    return marks.front() == bad ? MakeError(Reason::kInternal, "a bad request") : absl::OkStatus();
  });
  for (; bad < 50; bad += 2) {
    (void)RunsInSubmit(bad);
    EXPECT_EQ(ReasonOfAnswer(bad), Reason::kInternal);
    EXPECT_TRUE((RunsInSubmit(bad + 1), answers_.Get(bad + 1).ok()));
  }
  UntilOneRunsInSubmit(100);
}

TEST_F(EngineTurnTest, ShortTextsAreTokenizedInSubmit) {
  StartWithModel();
  const std::string book(5000, 'x');
  EXPECT_NE(Encode(TextRequest({"a", "b"}), true), std::this_thread::get_id());
  EXPECT_EQ(tokenizer_, std::this_thread::get_id());
  Encode(TextRequest({"a", "b"}), false);
  EXPECT_NE(tokenizer_, std::this_thread::get_id());
  tokenizer_ = {};
  Encode(TextRequest({"a", book}), true);
  EXPECT_NE(tokenizer_, std::this_thread::get_id());
  EXPECT_EQ(script_->batches().size(), 3U);
}

TEST_F(EngineTurnTest, ABadShortTextIsRefusedBySubmit) {
  StartWithModel();
  EncodeRequest request = TextRequest({"bad"});
  request.call.may_run_in_submit = true;
  const auto ticket = engine_->Submit(std::move(request), encodings_.Slot(1));
  EXPECT_EQ(FieldOf(ticket.status()), "texts.texts[0]");
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(encodings_.size(), 0U);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
}

// Without a run, whatever the device does.
TEST_F(EngineTurnTest, AnswersOfTheCacheComeFromSubmit) {
  options_.answer_cache = 1 << 20;
  StartWithModel();
  EXPECT_NE(Encode(TextRequest({"a"}), true), std::this_thread::get_id());
  Occupy();
  EXPECT_EQ(Encode(TextRequest({"a"}), true), std::this_thread::get_id());
  EXPECT_NE(Encode(TextRequest({"a"}), false), std::this_thread::get_id());
  script_->Open();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
}

}  // namespace
}  // namespace castor
