// Lanes against the echo in this process, over its real socket.

#include "client/load/drive/lane.h"

#include <gtest/gtest.h>

#include "client/load/http2/local_server.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;

class LaneTest : public ::testing::Test {
 protected:
  LaneTest() {
    workload_.classes.resize(2);
    workload_.classes[0].name = "first";
    workload_.classes[1].name = "second";
    for (ClassSpec& spec : workload_.classes) {
      spec.call = AttendSpec{.lengths = FixedLength{4}, .heads = 1, .head_dim = 4};
      spec.payloads = 2;
    }
    protocol_ = MakeCastorProtocol({});
    traffic_.workload = &workload_;
    traffic_.protocol = protocol_.get();
    for (const ClassSpec& spec : workload_.classes) {
      traffic_.payloads.push_back(protocol_->MakePayloads(spec, 1));
    }
    traffic_.endpoints = {echo_.target()};
    traffic_.connections = 2;
    run_.cells.assign(2, std::vector<Cell>(1));
  }

  // What two lanes that share a schedule measured.
  void RunOpen(const Schedule& schedule, int64_t max_in_flight = 0) {
    Recorder one(workload_, 1, nullptr), two(workload_, 1, nullptr);
    {
      Lane first(traffic_, one, in_flight_), second(traffic_, two, in_flight_);
      const auto begin = Clock::now() + milliseconds(5);
      first.StartOpen(schedule, 0, 2, max_in_flight, begin);
      second.StartOpen(schedule, 1, 2, max_in_flight, begin);
      first.Await();
      second.Await();
    }
    one.MoveTo(run_);
    two.MoveTo(run_);
    for (const Recorder* recorder : {&one, &two}) {
      for (size_t i = 0; i < kOutcomes; ++i) calls_[i] += recorder->calls()[0][i];
    }
  }

  LocalServer echo_{LocalServer::Echo};
  Workload workload_;
  std::unique_ptr<Protocol> protocol_;
  Traffic traffic_;
  InFlight in_flight_{2};
  RunData run_;
  std::array<int64_t, kOutcomes> calls_{};
};

TEST_F(LaneTest, SendsEachRequestOfAScheduleOnce) {
  Schedule schedule;
  for (int i = 0; i < 1000; ++i) {
    schedule.push_back({.at_ns = i * 20'000,
                        .payload = static_cast<uint32_t>(i % 2),
                        .cls = static_cast<uint16_t>(i % 4 == 0)});
  }
  RunOpen(schedule);
  EXPECT_EQ(run_.cells[0][0].of(Outcome::kOk), 750);
  EXPECT_EQ(run_.cells[1][0].of(Outcome::kOk), 250);
  EXPECT_EQ(run_.cells[0][0].lag.count(), 750);
  EXPECT_EQ(in_flight_.all(), 0);
  EXPECT_EQ(calls_[static_cast<int>(Outcome::kOk)], 1000);
  // From the intended time is never shorter than from sending.
  for (const double q : {0.1, 0.5, 0.9, 1.0}) {
    EXPECT_GE(run_.cells[0][0].intended.ValueAt(q), run_.cells[0][0].service.ValueAt(q));
  }
}

TEST_F(LaneTest, NeverSendsBeforeTheIntendedTime) {
  Schedule schedule;
  for (int i = 0; i < 200; ++i) schedule.push_back({.at_ns = i * 200'000});
  const auto begin = Clock::now();
  RunOpen(schedule);
  EXPECT_GE(Clock::now() - begin, milliseconds(39));
  EXPECT_EQ(run_.cells[0][0].lag.count(), 200);  // none negative: those would count as zero,
  EXPECT_GT(run_.cells[0][0].lag.max(), 0);      // and all of them cannot
}

TEST_F(LaneTest, WhatWarmsUpIsSentAndNotCounted) {
  Schedule schedule;
  for (int i = 0; i < 10; ++i) schedule.push_back({.at_ns = (i - 10) * 100'000});
  for (int i = 0; i < 7; ++i) schedule.push_back({.at_ns = i * 100'000});
  RunOpen(schedule);
  EXPECT_EQ(run_.cells[0][0].planned(), 7);
  EXPECT_EQ(calls_[static_cast<int>(Outcome::kOk)], 17);
}

TEST_F(LaneTest, OverTheCapRequestsAreDroppedAndCounted) {
  // All at once: the first is answered when many of the others are due.
  RunOpen(Schedule(500), /*max_in_flight=*/1);
  const Cell& cell = run_.cells[0][0];
  EXPECT_EQ(cell.planned(), 500);
  EXPECT_GT(cell.of(Outcome::kDropped), 0);
  EXPECT_EQ(cell.of(Outcome::kOk) + cell.of(Outcome::kDropped), 500);
  EXPECT_EQ(calls_[static_cast<int>(Outcome::kOk)], cell.of(Outcome::kOk));
}

TEST_F(LaneTest, APlannedCancellationIsNoFailure) {
  Schedule schedule(100);
  for (Planned& planned : schedule) planned.cancel_after_ns = 0;
  RunOpen(schedule);
  const Cell& cell = run_.cells[0][0];
  EXPECT_EQ(cell.of(Outcome::kOk) + cell.of(Outcome::kCancelled), 100);
  EXPECT_EQ(cell.of(Outcome::kFailed), 0);
}

TEST_F(LaneTest, AClosedLoopKeepsItsCallersBusyUntilTheEnd) {
  Recorder recorder(workload_, 1, nullptr);
  {
    Lane lane(traffic_, recorder, in_flight_);
    const auto begin = Clock::now();
    lane.StartClosed([] { return Planned{}; }, 3, {}, begin, begin, begin + milliseconds(50));
    lane.Await();
    EXPECT_GE(Clock::now() - begin, milliseconds(50));
  }
  recorder.MoveTo(run_);
  EXPECT_GT(run_.cells[0][0].of(Outcome::kOk), 3);
  EXPECT_EQ(in_flight_.all(), 0);
}

TEST_F(LaneTest, ThinkingCallersSendOneRequestInEachTurn) {
  Recorder recorder(workload_, 1, nullptr);
  {
    Lane lane(traffic_, recorder, in_flight_);
    const auto begin = Clock::now();
    lane.StartClosed([] { return Planned{}; }, 2, milliseconds(20), begin, begin,
                     begin + milliseconds(100));
    lane.Await();
  }
  recorder.MoveTo(run_);
  EXPECT_GE(run_.cells[0][0].of(Outcome::kOk), 2);
  EXPECT_LE(run_.cells[0][0].of(Outcome::kOk), 2 * 5);  // each at least 20 ms after the one before
}

TEST_F(LaneTest, AStoppedLaneEndsBeforeItsSchedule) {
  Recorder recorder(workload_, 1, nullptr);
  Schedule schedule(3);
  schedule[2].at_ns = int64_t{3600} * 1'000'000'000;
  Lane lane(traffic_, recorder, in_flight_);
  lane.StartOpen(schedule, 0, 1, 0, Clock::now());
  lane.Stop();
  lane.Await();
  recorder.MoveTo(run_);
  EXPECT_LE(run_.cells[0][0].planned(), 2);
}

TEST_F(LaneTest, AServerThatIsGoneIsAnOutcomeLikeOthers) {
  traffic_.endpoints = {"unix-abstract:castor-load-nobody"};
  RunOpen(Schedule(20));
  EXPECT_EQ(run_.cells[0][0].of(Outcome::kFailed), 20);
  EXPECT_FALSE(run_.cells[0][0].messages.empty());
}

}  // namespace
}  // namespace castor::load
