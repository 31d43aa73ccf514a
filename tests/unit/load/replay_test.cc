#include "client/load/schedule/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "client/cli/command.h"
#include "client/load/schedule/trace.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TraceRequest Attend(int64_t at_us, std::vector<int64_t> lengths) {
  TraceRequest request;
  request.at_us = at_us;
  request.lengths = std::move(lengths);
  request.heads = 2;
  request.head_dim = 16;
  return request;
}

TraceRequest Texts(int64_t at_us, std::vector<int64_t> lengths) {
  TraceRequest request;
  request.at_us = at_us;
  request.encode = true;
  request.lengths = std::move(lengths);
  return request;
}

class ReplayTest : public testing::Test {
 protected:
  ~ReplayTest() override { std::filesystem::remove(path_); }

  Workload Of(const std::vector<TraceRequest>& requests) {
    TraceWriter writer(path_);
    for (const TraceRequest& request : requests) writer.Write(request);
    EXPECT_TRUE(writer.Close());
    Workload workload;
    workload.load.emplace<Replay>().file = path_;
    workload.duration = workload.warm_up = nanoseconds(0);
    return workload;
  }

  const std::string path_ = testing::TempDir() + "/castor_replay_test_" + std::to_string(getpid());
};

const std::vector<int64_t>& LengthsOf(const Workload& workload, const Planned& planned) {
  const Call& call = workload.classes.at(planned.cls).calls.at(planned.payload);
  const auto* attend = std::get_if<AttendSpec>(&call);
  return attend != nullptr ? attend->exact_lengths : std::get<EncodeSpec>(call).exact_lengths;
}

TEST_F(ReplayTest, EveryRequestIsSentAtItsTimeInItsShape) {
  std::mt19937_64 random(FreshSeed());
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 2000; ++i) {
    const auto length = static_cast<int64_t>(1 + random() % 40);
    const auto at = static_cast<int64_t>(1'000'000 + random() % 1'000'000'000);
    requests.push_back(random() % 2 == 0 ? Attend(at, {length, 7}) : Texts(at, {length + 2}));
  }
  ReplaySummary summary;
  const Workload workload = PrepareReplay(Of(requests), &summary);
  EXPECT_EQ(summary.requests, 2000);
  EXPECT_EQ(summary.approximated, 0);
  const Schedule schedule = MakeSchedule(workload, 0);
  ASSERT_EQ(schedule.size(), requests.size());
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.at_us < b.at_us; });
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(schedule[i].at_ns, (requests[i].at_us - requests[0].at_us) * 1000);
    std::vector<int64_t> expected = requests[i].lengths;
    if (requests[i].encode) expected[0] -= 2;  // the two special tokens
    ASSERT_EQ(LengthsOf(workload, schedule[i]), expected);
  }
  EXPECT_GT(workload.duration, nanoseconds(schedule.back().at_ns));
}

TEST_F(ReplayTest, ClassesAreWhatAUserAsksFor) {
  std::vector<TraceRequest> requests = {Attend(0, {100}), Attend(1, {128}), Attend(2, {64, 65}),
                                        Texts(3, {12}), Texts(4, {13})};
  requests[1].kernel.kernel = "clustered";
  requests[1].kernel.clusters = 7;
  requests[2].priority = v1::HIGH;
  requests[4].model = "mini";
  const Workload workload = PrepareReplay(Of(requests));
  std::vector<std::string> names;
  for (const ClassSpec& spec : workload.classes) names.push_back(spec.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"attend 128", "attend 256 high", "attend clustered 128",
                                      "encode 16", "encode mini 16"}));
}

TEST_F(ReplayTest, DeadlinesAreKeptAndNamedWhereTheyTellClassesApart) {
  std::vector<TraceRequest> requests = {Attend(0, {100}), Attend(1, {101}), Attend(2, {102}),
                                        Attend(3, {5})};
  requests[0].deadline_ms = 47.2;
  requests[1].deadline_ms = 30;
  const Workload workload = PrepareReplay(Of(requests));
  std::map<std::string, nanoseconds> deadlines;
  for (const ClassSpec& spec : workload.classes) deadlines[spec.name] = spec.deadline;
  EXPECT_EQ(deadlines, (std::map<std::string, nanoseconds>{
                           {"attend 128 within 50ms", milliseconds(48)},
                           {"attend 128 without a deadline", ClassSpec().deadline},
                           {"attend 8", ClassSpec().deadline}}));
}

TEST_F(ReplayTest, ShapesOfAClassShareNothingButTheClass) {
  std::vector<TraceRequest> requests = {Attend(0, {100}), Attend(1, {100}), Attend(2, {100}),
                                        Attend(3, {100})};
  requests[1].heads = 4;
  requests[2].dtype = v1::BFLOAT16;
  requests[2].key_lengths = {300};
  const Workload workload = PrepareReplay(Of(requests));
  ASSERT_EQ(workload.classes.size(), 1U);
  EXPECT_EQ(workload.classes[0].payloads, 3);
  const Schedule schedule = MakeSchedule(workload, 0);
  EXPECT_EQ(schedule[0].payload, schedule[3].payload);
  const auto call = [&](size_t i) {
    return std::get<AttendSpec>(workload.classes[0].calls[schedule[i].payload]);
  };
  EXPECT_EQ(call(1).heads, 4);
  EXPECT_EQ(call(2).dtype, v1::BFLOAT16);
  EXPECT_EQ(call(2).key_lengths, (std::vector<int64_t>{300}));
}

TEST_F(ReplayTest, ManyShapesAreSentAsNeighbours) {
  std::mt19937_64 random(FreshSeed());
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 3000; ++i) {
    requests.push_back(Attend(i, {static_cast<int64_t>(513 + random() % 512)}));
  }
  ReplaySummary summary;
  const Workload workload = PrepareReplay(Of(requests), &summary);
  ASSERT_EQ(workload.classes.size(), 1U);
  EXPECT_EQ(workload.classes[0].payloads, 64);
  EXPECT_GT(summary.approximated, 2000);
  EXPECT_LT(summary.token_error, 0.02);
  const Schedule schedule = MakeSchedule(workload, 0);
  double error = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    error += std::abs(static_cast<double>(LengthsOf(workload, schedule[i])[0]) -
                      static_cast<double>(requests[i].lengths[0])) /
             static_cast<double>(requests[i].lengths[0]);
  }
  EXPECT_NEAR(error, summary.token_error * static_cast<double>(summary.approximated), 1e-6);
}

TEST_F(ReplayTest, SpeedWarmUpAndDurationApply) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 100; ++i) requests.push_back(Attend(5'000'000 + i * 100'000, {8}));
  Workload workload = Of(requests);
  std::get<Replay>(workload.load).speed = 2;
  workload.warm_up = milliseconds(1000);
  workload.duration = milliseconds(2000);
  const Schedule schedule = MakeSchedule(PrepareReplay(workload), 0);
  ASSERT_EQ(schedule.size(), 60U);
  EXPECT_EQ(schedule.front().at_ns, -1'000'000'000);
  EXPECT_EQ(schedule[20].at_ns, 0);
  EXPECT_EQ(schedule.back().at_ns, 1'950'000'000);
}

TEST_F(ReplayTest, WhatTheTraceDoesNotSayComesFromTheWorkload) {
  Workload workload = Of({Attend(0, {8}), Attend(9, {8})});
  auto& each = std::get<Replay>(workload.load).each;
  each.tenant = "t";
  each.cancel_share = 1;
  each.cancel_after = milliseconds(3);
  std::get<AttendSpec>(each.call).inputs = Inputs::kStructured;
  workload = PrepareReplay(workload);
  EXPECT_EQ(workload.classes[0].tenant, "t");
  EXPECT_EQ(std::get<AttendSpec>(workload.classes[0].calls[0]).inputs, Inputs::kStructured);
  for (const Planned& planned : MakeSchedule(workload, 1)) {
    EXPECT_EQ(planned.cancel_after_ns, 3'000'000);
    EXPECT_TRUE(planned.verify);
  }
}

TEST_F(ReplayTest, TextsOfWhichOnlyBytesAreKnownAreGuessed) {
  TraceRequest refused = Texts(0, {});
  refused.text_bytes = {100, 0};
  const Workload workload = PrepareReplay(Of({refused}));
  EXPECT_EQ(std::get<EncodeSpec>(workload.classes[0].calls[0]).exact_lengths,
            (std::vector<int64_t>{20, 1}));
}

TEST_F(ReplayTest, RefusesATraceThatChangedOrIsTooShort) {
  const Workload workload = PrepareReplay(Of({Attend(0, {8}), Attend(9, {8})}));
  Of({Attend(0, {8}), Attend(9, {9})});
  EXPECT_THROW(MakeSchedule(workload, 0), cli::UsageError);
  Workload late = Of({Attend(0, {8}), Attend(9, {8})});
  late.warm_up = milliseconds(1);
  EXPECT_THROW(PrepareReplay(late), cli::UsageError);
}

TEST_F(ReplayTest, RefusesMoreKindsThanCanBeTold) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 300; ++i) {
    requests.push_back(Texts(i, {4}));
    requests.back().model = "m" + std::to_string(i);
  }
  EXPECT_THROW(PrepareReplay(Of(requests)), cli::UsageError);
}

}  // namespace
}  // namespace castor::load
