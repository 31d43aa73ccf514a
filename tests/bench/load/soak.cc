// Everything at once for as long as is asked for: what is kept that should be given back shows in
// minutes, not in seconds.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/bench/load/accountant.h"
#include "tests/bench/load/clean_end.h"
#include "tests/bench/load/memory_watch.h"
#include "tests/bench/load/requests.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

// The traffic repeats: 6 s of steady calls, with a burst in their midst and a long call before
// them, and 4 s in which the server ends what it has and gives back what was freed.
constexpr auto kCycle = std::chrono::seconds(10);
constexpr auto kBurstAt = std::chrono::seconds(4);
constexpr auto kPauseAt = std::chrono::seconds(6);
constexpr auto kBeforeNext = std::chrono::milliseconds(100);  // the end of the nothing
constexpr int kSteadyOpen = 6;
constexpr int kBurst = 1000;  // at once: seconds of work for a server on two cores

constexpr double kMaxGrowth = 1;       // MiB per minute
constexpr double kLeastSeconds = 300;  // in less, memory has not settled: there is no bound

// What is freed and kept counts as resident, and by default fills up over hours.
constexpr char kKeptBytes[] = "0";

// When each cycle begins.
struct Cycles {
  Clock::time_point begin = Clock::now();
  int count = 1;

  Clock::time_point at(int cycle) const { return begin + cycle * kCycle; }

  // Free blocks between used ones cannot be given back, so a higher peak that comes by chance looks
  // like growth. There is twice as much in the first fifth, and the first half is not counted.
  int times_as_much(int cycle) const { return cycle < (count + 4) / 5 ? 2 : 1; }
  int counted_from() const { return (count + 1) / 2; }
};

// Of long calls one in three is cancelled, and one has a deadline that it cannot meet.
MixedCall DrawLongCall(const std::vector<KnownProblem>& problems, std::mt19937_64& random) {
  MixedCall call = {.problem = &problems[random() % problems.size()]};
  call.settings.tenant = "steady";
  call.settings.deadline = Clock::now() + std::chrono::minutes(1);
  const auto fate = random() % 3;
  if (fate == 0) call.cancel_after = std::chrono::milliseconds(300);
  if (fate == 1) call.settings.deadline = Clock::now() + std::chrono::milliseconds(300);
  return call;
}

// One tenant: a few calls at a time, and a long one now and then.
void SendSteadily(const Cycles& cycles, const std::vector<KnownProblem>& problems,
                  const std::vector<KnownProblem>& long_ones, Accountant& accountant) {
  std::mt19937_64 random(1);
  for (int cycle = 0; cycle < cycles.count; ++cycle) {
    const auto begin = cycles.at(cycle);
    accountant.WaitUntil(begin);
    const int times = cycles.times_as_much(cycle);
    for (int i = 0; i < times; ++i) accountant.Send(DrawLongCall(long_ones, random));
    while (Clock::now() < begin + kPauseAt) {
      accountant.WaitUntilBelow(times * kSteadyOpen);
      accountant.Send(DrawCall(problems, "steady", std::chrono::minutes(1), random));
    }
  }
  accountant.WaitForAll();
}

// The other: more than the server can do, all at once.
void SendInBursts(const Cycles& cycles, const std::vector<KnownProblem>& problems,
                  Accountant& accountant) {
  std::mt19937_64 random(2);
  for (int cycle = 0; cycle < cycles.count; ++cycle) {
    accountant.WaitUntil(cycles.at(cycle) + kBurstAt);
    for (int i = 0; i < cycles.times_as_much(cycle) * kBurst; ++i) {
      accountant.Send(DrawCall(problems, "bursty", std::chrono::seconds(1), random));
    }
  }
  accountant.WaitForAll();
}

std::vector<KnownProblem> LongProblems(Caller& caller) {
  std::mt19937_64 random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 64; ++i) texts.push_back(Words(200, random));
  std::vector<KnownProblem> problems;
  problems.push_back(
      Solve(caller, AttendMessage({.tokens = 32768, .heads = 1, .head_dim = 64}, random())));
  problems.push_back(Solve(caller, EncodeMessage(texts)));
  return problems;
}

// What is resident, by seconds: the means of stretches of `length` from `from` to `to`. What goes
// up and down within a stretch is no growth.
std::vector<Point> Means(const std::vector<Point>& samples, double length, double from, double to) {
  std::vector<Point> means;
  for (; from + length <= to; from += length) {
    double sum = 0, count = 0;
    for (const Point& sample : samples) {
      if (sample.x < from || sample.x >= from + length) continue;
      sum += sample.y;
      ++count;
    }
    if (count > 0) means.push_back({from + length / 2, sum / count});
  }
  return means;
}

// The least that the server held in each cycle, MiB by cycle: what a leak must raise, and what no
// call in flight or late trimming can.
std::vector<Point> Floors(const std::vector<Point>& samples, const Cycles& cycles) {
  std::vector<Point> floors;
  for (int cycle = 0; cycle < cycles.count; ++cycle) {
    const double begin = static_cast<double>(cycle) * static_cast<double>(kCycle.count());
    double least = INFINITY;
    for (const Point& sample : samples) {
      const bool within = sample.x >= begin && sample.x < begin + kCycle.count();
      if (within) least = std::min(least, sample.y);
    }
    if (std::isfinite(least)) floors.push_back({static_cast<double>(cycle), least});
  }
  return floors;
}

struct Growth {
  double slope = 0, error = 0;  // MiB per minute; the standard error
};

// Notes the growth in the second half, and returns it.
Growth NoteGrowth(const std::string& what, const std::vector<Point>& samples, const Cycles& cycles,
                  Report& report) {
  std::vector<Point> later;
  for (const Point& point : samples) {
    if (point.x >= cycles.counted_from()) later.push_back(point);
  }
  constexpr double kPerMinute = std::chrono::minutes(1) / kCycle;
  const Line line = later.empty() ? Line() : LeastSquares(later);
  const double growth = kPerMinute * line.slope, error = kPerMinute * line.standard_error;
  report.Note(what + ", in the second half: first, last; slope, its standard error",
              later.empty() ? "n/a"
                            : Figure(later.front().y) + ", " + Figure(later.back().y, "MiB") +
                                  "; " + Figure(growth) + ", " + Figure(error, "MiB/min"));
  return {growth, error};
}

void ReportMemory(MemoryWatch& memory, const std::vector<Point>& heap, const Cycles& cycles,
                  Report& report) {
  const double seconds = cycles.count * static_cast<double>(kCycle.count());
  std::string minutes;
  for (const Point& minute : Means(memory.Samples(), 60, 0, seconds)) {
    minutes += Figure(minute.y) + ", ";
  }
  report.Note("resident: means of the minutes; in all", minutes + "MiB; " + memory.Describe());
  // A leak shows in both. The heap tells it for certain; what is resident scatters by what is given
  // back when, so its slope alone is judged.
  const Growth heap_growth =
      NoteGrowth("the heap's blocks in use between calls", heap, cycles, report);
  const Growth growth = NoteGrowth("the least that is resident in each cycle",
                                   Floors(memory.Samples(), cycles), cycles, report);
  const std::string heap_what = "growth of the heap's blocks in use, with two standard errors";
  const std::string what = "growth of what is resident";
  const double sure = heap_growth.slope + 2 * heap_growth.error;
  if (seconds < kLeastSeconds) {
    report.Note(heap_what + "; " + what, Figure(sure) + "; " + Figure(growth.slope, "MiB/min"));
    return;
  }
  report.AtMost(heap_what, sure, kMaxGrowth, "MiB/min");
  report.AtMost(what, growth.slope, kMaxGrowth, "MiB/min");
}

}  // namespace

void Soak(const Settings& settings, Report& report) {
  ServerProcess server(settings.server, {"--model", "encoder=" + settings.model,  //
                                         "--max-kept-bytes", kKeptBytes});
  Caller caller(server.address(), 8);
  const std::vector<KnownProblem> problems = KnownProblems(caller, 1);
  const std::vector<KnownProblem> long_ones = LongProblems(caller);
  Accountant steady(caller), bursty(caller);

  const Cycles cycles = {.count = std::max(1, static_cast<int>(settings.phase / kCycle))};
  MemoryWatch memory(server, std::chrono::milliseconds(200));
  std::thread steady_thread([&] { SendSteadily(cycles, problems, long_ones, steady); });
  std::thread bursty_thread([&] { SendInBursts(cycles, problems, bursty); });
  std::vector<Point> heap;  // MiB by cycle
  for (int cycle = 1; cycle <= cycles.count; ++cycle) {
    std::this_thread::sleep_until(cycles.at(cycle) - kBeforeNext);
    const auto used = client::SumOf(server.Metrics(), "castor_heap_used_bytes");
    if (used.has_value()) heap.push_back({static_cast<double>(cycle - 1), *used / (1 << 20)});
    std::this_thread::sleep_until(cycles.at(cycle));
    if (cycle % (std::chrono::minutes(1) / kCycle) != 0) continue;
    std::fprintf(stderr, "soak: %d of %d s, %lld calls, %lld MiB\n",
                 static_cast<int>(cycle * kCycle.count()),
                 static_cast<int>(cycles.count * kCycle.count()),
                 static_cast<long long>(steady.account().sent + bursty.account().sent),
                 static_cast<long long>(server.ResidentBytes() >> 20));
  }
  ReportMemory(memory, heap, cycles, report);
  steady_thread.join();
  bursty_thread.join();

  report.Note("the steady tenant's answers", TextOf(steady.account().codes));
  report.Note("the bursty tenant's answers", TextOf(bursty.account().codes));
  Account both = steady.account();
  both.Add(bursty.account());
  CheckAnswers(both, report);
  CheckNothingLeftBehind(server, report);
  server.Terminate();
  CheckDrained(server, report);
}

}  // namespace castor::bench
