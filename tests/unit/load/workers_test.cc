#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/load/workers/job.h"
#include "client/load/workers/token.h"
#include "client/load/workers/wire.h"
#include "client/load/workers/worker_server.h"

namespace castor::load {
namespace {

TEST(Token, IsReadFromTheFirstLine) {
  const std::string path = ::testing::TempDir() + "token_" + std::to_string(getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadToken(path);
  };
  EXPECT_EQ(read("0123456789abcdef\nmore\n"), "0123456789abcdef");
  EXPECT_EQ(read("0123456789abcdef\r\n"), "0123456789abcdef");
  EXPECT_EQ(read("0123456789abcdef"), "0123456789abcdef");
  EXPECT_THROW(read("0123456789abcde\n"), std::runtime_error);
  EXPECT_THROW(read(""), std::runtime_error);
  EXPECT_THROW(read("0123456789 abcdef\n"), std::runtime_error);
  std::filesystem::remove(path);
  EXPECT_THROW(ReadToken(path), std::runtime_error);
}

TEST(Token, IsEqualToItselfAlone) {
  const std::string token = MakeToken();
  EXPECT_EQ(token.size(), 64u);
  EXPECT_NE(token, MakeToken());
  EXPECT_TRUE(SameToken(token, token));
  EXPECT_FALSE(SameToken("", token));
  EXPECT_FALSE(SameToken(token, ""));
  EXPECT_FALSE(SameToken(token + token, token));
  EXPECT_FALSE(SameToken(token.substr(1), token));
  for (size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] ^= 1;
    EXPECT_FALSE(SameToken(other, token)) << i;
  }
}

TEST(OnThisMachineOnly, IsLoopbackAndSockets) {
  for (const char* local : {"127.0.0.1:0", "127.1.2.3:80", "localhost:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(OnThisMachineOnly(local)) << local;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host:1", "localhost.evil:1", ""}) {
    EXPECT_FALSE(OnThisMachineOnly(open)) << open;
  }
}

TEST(Wire, ProgressComesBackAsItWas) {
  Progress progress;
  progress.phase = "running";
  progress.elapsed_seconds = 3;
  progress.total_seconds = 60;
  progress.classes = {"a", "b"};
  progress.in_flight = 17;
  progress.cpu_share = 0.25;
  progress.last.resize(2);
  progress.all.resize(2);
  progress.last[1].outcomes = {1, 2, 3, 4, 5, 6};
  progress.last[1].good = 1;
  progress.last[1].max_lag_ns = 99;
  progress.last[1].in_flight = 8;
  for (int i = 1; i <= 1000; ++i) progress.all[0].intended.Record(int64_t{i} * i * 10'000);
  const Progress back = FromMessage(ToMessage(progress));
  EXPECT_EQ(back.phase, progress.phase);
  EXPECT_EQ(back.elapsed_seconds, 3);
  EXPECT_EQ(back.total_seconds, 60);
  EXPECT_EQ(back.classes, progress.classes);
  EXPECT_EQ(back.in_flight, 17);
  EXPECT_EQ(back.cpu_share, 0.25);
  EXPECT_EQ(back.last[1].outcomes, progress.last[1].outcomes);
  EXPECT_EQ(back.last[1].good, 1);
  EXPECT_EQ(back.last[1].max_lag_ns, 99);
  EXPECT_EQ(back.last[1].in_flight, 8);
  const Histogram& was = progress.all[0].intended;
  EXPECT_EQ(back.all[0].intended.count(), 1000);
  for (const double quantile : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(back.all[0].intended.ValueAt(quantile), was.ValueAt(quantile));
  }
}

TEST(Wire, ProgressOfSeveralAddsUpAndTheSlowestTellsTheTime) {
  Progress one;
  one.phase = "running";
  one.elapsed_seconds = 3;
  one.total_seconds = 60;
  one.classes = {"a"};
  one.last.resize(1);
  one.last[0].good = 5;
  one.in_flight = 2;
  one.cpu_share = 0.1;
  Progress two = one;
  two.phase = "warming up";
  two.elapsed_seconds = 2;
  two.last[0].good = 7;
  two.cpu_share = 0.7;
  const Progress sum = Together({one, two});
  EXPECT_EQ(sum.phase, "warming up");
  EXPECT_EQ(sum.elapsed_seconds, 2);
  EXPECT_EQ(sum.last[0].good, 12);
  EXPECT_EQ(sum.in_flight, 4);
  EXPECT_EQ(sum.cpu_share, 0.7);
}

TEST(Wire, AJobComesBackAsItWas) {
  Job job;
  job.workload_toml = "[[class]]\n";
  job.seed = ~uint64_t{0};
  job.endpoints = {"a:1", "b:2"};
  job.index = 2;
  job.workers = 3;
  job.flags = {{"verify", "1%"}, {"threads", "2"}};
  const Job back = FromMessage(ToMessage(job, "1"));
  EXPECT_EQ(back.workload_toml, job.workload_toml);
  EXPECT_EQ(back.seed, job.seed);
  EXPECT_EQ(back.endpoints, job.endpoints);
  EXPECT_EQ(back.index, 2u);
  EXPECT_EQ(back.workers, 3u);
  EXPECT_EQ(back.flags, job.flags);
}

TEST(ShareOf, DividesTheCapAndNothingElse) {
  Workload workload;
  workload.load = OpenLoop{.max_in_flight = 10};
  int64_t sum = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    const int64_t cap = std::get<OpenLoop>(ShareOf(workload, i, 3).load).max_in_flight;
    EXPECT_GE(cap, 3);
    EXPECT_LE(cap, 4);
    sum += cap;
  }
  EXPECT_EQ(sum, 10);
  EXPECT_THROW(ShareOf(workload, 0, 11), std::invalid_argument);
  workload.load = OpenLoop{};
  EXPECT_EQ(std::get<OpenLoop>(ShareOf(workload, 0, 11).load).max_in_flight, 0);
  workload.load = ClosedLoop{.callers = 7};
  EXPECT_EQ(std::get<ClosedLoop>(ShareOf(workload, 1, 2).load).callers, 7);
}

}  // namespace
}  // namespace castor::load
