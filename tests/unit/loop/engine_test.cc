// The engine on a fake device, as callers see it: admission, order, batching, cancellation,
// deadlines and draining.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/shared_object.h"
#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using EngineTest = EngineFixture;

TEST_F(EngineTest, AnswersWithResultAndReport) {
  Start();
  AttentionRequest request = Request(7, /*tokens=*/3, /*heads=*/2, /*dim=*/8);
  request.call.received = clock_->Now() - microseconds(40);
  Submit(std::move(request), 0);
  const auto& result = answers_.Get(0);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.dtype, DType::kFloat32);
  EXPECT_EQ(result->output.shape, (std::vector<int64_t>{3, 2, 8}));
  ASSERT_EQ(result->output.data.size(), 3 * 2 * 8 * sizeof(float));
  for (int i = 0; i < 3 * 2 * 8; ++i) EXPECT_EQ(result->output.data.as<float>()[i], 14.0f);
  const ExecutionReport& report = result->report;
  EXPECT_EQ(NameOf(report.kernel.kernel), KernelName::kVanilla);
  EXPECT_EQ(report.kernel.device, "fake");
  EXPECT_EQ(report.kernel.backend, "fake-vanilla");
  EXPECT_EQ(report.timing.decode_us, 40);
  EXPECT_EQ(report.timing.queue_us, 0);
  EXPECT_EQ(report.timing.copy_in_us, 1);
  EXPECT_EQ(report.timing.compute_us, 2);
  EXPECT_EQ(report.timing.copy_out_us, 3);
  EXPECT_EQ(report.batch.requests, 1);
  EXPECT_EQ(report.batch.tokens, 3);
}

TEST_F(EngineTest, ReadsTheCallersMemoryOnlyInsideSubmit) {
  Start();
  Occupy();
  Submit(Request(5), 0);
  std::fill(data_.back()->begin(), data_.back()->end(), 99.0f);
  script_->Open();
  ASSERT_TRUE(answers_.Get(0).ok());
  EXPECT_EQ(answers_.Get(0)->output.data.as<float>()[0], 10.0f);
}

TEST_F(EngineTest, ReadsFilesOnlyInsideSubmit) {
  Start();
  const SharedObject object(4 + 3 * 32 * 4);
  const std::vector<float> fives(32, 5), nines(32, 9);
  AttentionRequest request = Request(0);
  for (const auto& [tensor, offset] : {std::pair{&request.query, 4}, std::pair{&request.key, 132},
                                       std::pair{&request.value, 260}}) {
    object.Write(offset, std::as_bytes(std::span(fives)));
    tensor->pieces.clear();
    tensor->file = FileRange{object.descriptor(), offset, 128};
  }
  Occupy();
  Submit(std::move(request), 0);
  object.Write(4, std::as_bytes(std::span(nines)));
  object.Cut(0);
  script_->Open();
  ASSERT_TRUE(answers_.Get(0).ok()) << answers_.Get(0).status();
  EXPECT_EQ(answers_.Get(0)->output.data.as<float>()[0], 10.0f);
}

TEST_F(EngineTest, AFileThatWasCutIsRefusedAndTakesNothing) {
  Start();
  const SharedObject object(127);
  AttentionRequest request = Request(1);
  request.value.pieces.clear();
  request.value.file = FileRange{object.descriptor(), 0, 128};
  const auto ticket = engine_->Submit(std::move(request), answers_.Slot(0));
  EXPECT_EQ(FieldOf(ticket.status()), "value.shared_memory");
  EXPECT_EQ(Refusals(Reason::kInvalidField), 1u);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
  EXPECT_EQ(engine_->stats().memory.host_in_use_bytes, 0);
}

TEST_F(EngineTest, BatchesCompatibleRequestsPastIncompatibleOnes) {
  Start();
  Occupy();
  Submit(Request(1, 4, 1, 8), 1);
  Submit(Request(2, 4, 2, 8), 2);
  Submit(Request(3, 9, 1, 8), 3);
  Submit(Request(4, 1, 2, 8), 4);
  script_->Open();
  for (int id : {1, 2, 3, 4}) ASSERT_TRUE(answers_.Get(id).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {1, 3}, {2, 4}}));
  EXPECT_EQ(answers_.Get(3)->report.batch.requests, 2);
  EXPECT_EQ(answers_.Get(3)->report.batch.tokens, 13);
}

TEST_F(EngineTest, RefusesWhatDoesNotFitAndAdmitsItLater) {
  options_.max_queued_requests = 2;
  Start();
  Occupy();
  Submit(Request(1), 1);
  auto refused = engine_->Submit(Request(2), answers_.Slot(2));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kQueueFull);
  EXPECT_GT(RetryAfterOf(refused.status())->count(), 0);
  script_->Open();
  ASSERT_TRUE(answers_.Get(1).ok());
  Submit(Request(2), 3);
  ASSERT_TRUE(answers_.Get(3).ok());
  EXPECT_EQ(answers_.count(2), 0u);
  EXPECT_EQ(Refusals(Reason::kQueueFull), 1u);
}

TEST_F(EngineTest, CompletionsMaySubmit) {
  options_.max_queued_requests = 1;
  Start();
  auto ticket = engine_->Submit(Request(1), [&](absl::StatusOr<AttentionResult> first) {
    ASSERT_TRUE(first.ok());
    Submit(Request(2), 2);
  });
  ASSERT_TRUE(ticket.ok());
  EXPECT_TRUE(answers_.Get(2).ok());
}

TEST_F(EngineTest, ChecksForFiniteInputWhenAsked) {
  Start();
  AttentionRequest request = Request(1);
  data_.back()->at(5) = std::numeric_limits<float>::quiet_NaN();
  Submit(request, 1);
  EXPECT_TRUE(answers_.Get(1).ok());
  request.check_finite = true;
  auto refused = engine_->Submit(request, answers_.Slot(2));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kNonFiniteInput);
  answers_.Forget(1);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
}

// ---- cancellation

TEST_F(EngineTest, CancelsWaitingRequestsAtOnceWhileTheDeviceIsBusy) {
  Start();
  Occupy();
  const Ticket ticket = Submit(Request(1), 1);
  engine_->Cancel(ticket);
  EXPECT_EQ(ReasonOfAnswer(1), Reason::kCancelled);
  engine_->Cancel(ticket);  // again: ignored
  script_->Open();
  ASSERT_TRUE(answers_.Get(-1).ok());
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}}));
  EXPECT_EQ(engine_->stats().cancelled_queued, 1u);
}

TEST_F(EngineTest, FinishesARunningRequestThatIsCancelled) {
  Start();
  script_->Close();
  const Ticket ticket = Submit(Request(1), 1);
  script_->WaitForBatches(1);
  engine_->Cancel(ticket);
  engine_->Cancel(ticket + 1);  // unknown: ignored
  script_->Open();
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(engine_->stats().cancelled_running, 1u);
  EXPECT_EQ(engine_->stats().cancelled_queued, 0u);
}

// ---- deadlines

TEST_F(EngineTest, AnswersAnExpiredWaiterWhileTheDeviceIsBusy) {
  Start();
  Occupy();
  for (int id : {1, 2}) {
    AttentionRequest request = Request(id);
    request.call.deadline = clock_->Now() + seconds(3 - id);  // the second is due first
    Submit(std::move(request), id);
  }
  clock_->Advance(seconds(1));
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kDeadlineExceeded);
  EXPECT_EQ(answers_.count(1), 0u);
  clock_->Advance(seconds(1));
  EXPECT_EQ(ReasonOfAnswer(1), Reason::kDeadlineExceeded);
  script_->Open();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}}));
  EXPECT_EQ(engine_->stats().cancelled_queued, 2u);
}

TEST_F(EngineTest, RefusesARequestWhoseDeadlineHasPassed) {
  Start();
  AttentionRequest request = Request(1);
  request.call.deadline = clock_->Now();
  auto refused = engine_->Submit(std::move(request), answers_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kDeadlineExceeded);
}

TEST_F(EngineTest, IgnoresDeadlinesOfRunningAndAnsweredRequests) {
  Start();
  AttentionRequest request = Request(1);
  request.call.deadline = clock_->Now() + seconds(1);
  script_->Close();
  Submit(std::move(request), 1);
  script_->WaitForBatches(1);
  clock_->Advance(seconds(2));
  script_->Open();
  EXPECT_TRUE(answers_.Get(1).ok());
}

// ---- batch delay

TEST_F(EngineTest, WaitsForCompanyAsLongAsTheDelay) {
  options_.batch_delay = milliseconds(5);
  Start();
  Submit(Request(1), 1);
  clock_->Advance(milliseconds(4));
  Submit(Request(2), 2);
  clock_->Advance(milliseconds(1));
  ASSERT_TRUE(answers_.Get(1).ok());
  ASSERT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{1, 2}}));
  EXPECT_EQ(answers_.Get(1)->report.timing.queue_us, 5000);
  EXPECT_EQ(answers_.Get(2)->report.timing.queue_us, 1000);
}

TEST_F(EngineTest, DoesNotDelayAFullBatch) {
  options_.max_batch_tokens = 8;
  options_.batch_delay = seconds(60);
  Start();
  Submit(Request(1, 4), 1);
  Submit(Request(2, 4), 2);
  ASSERT_TRUE(answers_.Get(1).ok());
  ASSERT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{1, 2}}));
}

// A younger request of higher priority does not hold up one that has waited long enough.
TEST_F(EngineTest, EveryRequestWaitsForItsOwnDelayOnly) {
  options_.batch_delay = milliseconds(5);
  Start();
  AttentionRequest low = Request(1);
  low.call.priority = Priority::kLow;
  Submit(std::move(low), 1);
  clock_->Advance(milliseconds(4));
  Submit(Request(2, 4, 2, 8), 2);
  clock_->Advance(milliseconds(1));
  ASSERT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(answers_.count(2), 0u);
  clock_->Advance(milliseconds(4));
  ASSERT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(answers_.Get(1)->report.timing.queue_us, 5000);
  EXPECT_EQ(answers_.Get(2)->report.timing.queue_us, 5000);
}

TEST_F(EngineTest, DoesNotDelayWhenItDrains) {
  options_.batch_delay = seconds(60);
  Start();
  Submit(Request(1), 1);
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_TRUE(answers_.Get(1).ok());
}

// ---- draining

TEST_F(EngineTest, DrainFinishesWhatWasAdmittedAndRefusesTheRest) {
  Start();
  for (int id = 0; id < 50; ++id) Submit(Request(id), id);
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(answers_.size(), 50u);
  for (int id = 0; id < 50; ++id) EXPECT_TRUE(answers_.Get(id).ok());
  auto refused = engine_->Submit(Request(1), answers_.Slot(100));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kDraining);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
}

TEST_F(EngineTest, DrainAnswersWaitersWhenItsTimeIsUp) {
  Start();
  Occupy();
  Submit(Request(1), 1);
  EXPECT_FALSE(engine_->Drain(clock_->Now()));
  EXPECT_EQ(ReasonOfAnswer(1), Reason::kDraining);
  EXPECT_EQ(answers_.count(-1), 0u);
  script_->Open();
  EXPECT_TRUE(answers_.Get(-1).ok());  // it was running, so it finishes
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
}

TEST_F(EngineTest, DestructionDrains) {
  Start();
  for (int id = 0; id < 50; ++id) Submit(Request(id), id);
  engine_.reset();
  EXPECT_EQ(answers_.size(), 50u);
}

TEST_F(EngineTest, ResultsOutliveTheEngine) {
  Start();
  Submit(Request(21), 1);
  ASSERT_TRUE(answers_.Get(1).ok());
  engine_.reset();
  EXPECT_EQ(answers_.Get(1)->output.data.as<float>()[0], 42.0f);
  answers_.Forget(1);  // gives its share back
}

// ---- start-up and description

TEST_F(EngineTest, ReportsADeviceThatDoesNotOpen) {
  script_->open_status = MakeError(Reason::kInternal, "no such device");
  EXPECT_EQ(TryStart({}).status().message(), "no such device");
}

TEST_F(EngineTest, ReportsAModelThatDoesNotLoad) {
  options_.models.push_back({"m", "missing"});
  EXPECT_EQ(TryStart(options_).status().message(), "no such directory");
}

TEST_F(EngineTest, ChecksItsOptions) {
  const auto field = [&](auto EngineOptions::*option, auto value) {
    EngineOptions options;
    options.*option = value;
    return FieldOf(TryStart(options).status()).value_or("");
  };
  EXPECT_EQ(field(&EngineOptions::max_queued_requests, 0), "max_queued_requests");
  EXPECT_EQ(field(&EngineOptions::max_batch_tokens, -1), "max_batch_tokens");
  EXPECT_EQ(field(&EngineOptions::cost_model_budget, milliseconds(-1)), "cost_model_budget");
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(field(&EngineOptions::fidelity_share, share), "fidelity_share") << share;
  }
  options_.models = {{"a", "x"}, {"a", "y"}};
  EXPECT_EQ(FieldOf(TryStart(options_).status()), "models");
}

TEST_F(EngineTest, DescribesItselfAndCounts) {
  options_.models.push_back({"m", "present"});
  Start();
  const EngineInfo info = engine_->info();
  EXPECT_EQ(info.device.name, "fake");
  ASSERT_EQ(info.kernels.size(), 1u);
  EXPECT_EQ(info.kernels[0].name, KernelName::kVanilla);
  EXPECT_EQ(info.kernels[0].dtypes, std::vector<DType>{DType::kFloat32});
  const ModelInfos models = *engine_->models();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "m");

  Occupy();
  Submit(Request(1, 5), 1);
  Submit(Request(2, 6), 2);
  EXPECT_EQ(engine_->stats().load.queued_requests, 2);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 3);
  EXPECT_EQ(engine_->stats().load.inflight_tokens, 12);
  script_->Open();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));

  const EngineStats stats = engine_->stats();
  ASSERT_EQ(stats.work.size(), 2u);
  EXPECT_EQ(stats.work[0].operation, "attend");
  EXPECT_EQ(stats.work[0].kernel, "vanilla");
  EXPECT_EQ(stats.work[0].answered(), 3u);
  EXPECT_EQ(stats.work[0].batches, 2u);
  EXPECT_EQ(stats.work[0].tokens, 12u);
  EXPECT_EQ(stats.work[0].queue_seconds.count(), 3u);
  EXPECT_EQ(stats.work[0].batch_tokens.sum, 12);
  EXPECT_EQ(stats.work[1].operation, "encode");
  EXPECT_EQ(stats.work[1].answered(), 0u);
  EXPECT_EQ(stats.load.inflight_requests, 0);
  EXPECT_EQ(stats.load.inflight_tokens, 0);
  EXPECT_TRUE(stats.device_healthy);
}

TEST_F(EngineTest, AnAnswerCountsAgainstTheBytesUntilItIsDropped) {
  options_.max_queued_bytes = 4096;
  Start();
  Submit(Request(1, 20), 1);  // its output alone needs 640 bytes
  ASSERT_TRUE(answers_.Get(1).ok());
  const int64_t output = static_cast<int64_t>(answers_.Get(1)->output.data.size());
  LoadStats load = engine_->stats().load;
  EXPECT_EQ(load.inflight_requests, 0);
  EXPECT_EQ(load.inflight_tokens, 0);
  EXPECT_EQ(load.inflight_bytes, output);
  auto refused = engine_->Submit(Request(2, 30), answers_.Slot(2));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kQueueFull);
  answers_.Forget(1);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
  Submit(Request(2, 30), 2);
  EXPECT_TRUE(answers_.Get(2).ok());
}

}  // namespace
}  // namespace castor
