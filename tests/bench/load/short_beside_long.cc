// Short attention while one of 65,536 tokens is always in flight: the short ones must hardly
// notice, and the long one must still get most of the machine.

#include <atomic>
#include <future>

#include "tests/bench/load/closed_loop.h"
#include "tests/bench/load/open_loop.h"
#include "tests/bench/load/requests.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

constexpr double kLoad = 0.3;  // of the capacity for short ones
constexpr double kMaxAddedMs = 10;
constexpr double kLeastLongShare = 60;  // percent of its speed alone

// Long requests, one after another.
struct LongOnes {
  int64_t done = 0;
  double seconds = 0;
  Codes codes;

  // For `length` at least, and to the end of the one in flight then: so nothing is left half done,
  // and its part need not be guessed.
  void Run(Caller& caller, const grpc::ByteBuffer& request, std::chrono::duration<double> length) {
    const auto begin = Clock::now();
    do {
      const Answer answer = caller.CallAndWait(
          kAttend, request, {.deadline = Clock::now() + std::chrono::seconds(300)});
      Count(answer.code, answer.reason, codes);
      if (answer.code != grpc::StatusCode::OK) break;
      ++done;
    } while (Clock::now() - begin < length);
    seconds += Milliseconds(Clock::now() - begin) / 1000;
  }
  double PerSecond() const { return seconds > 0 ? static_cast<double>(done) / seconds : 0; }
};

void NoteLatencies(const std::string& what, const Outcomes& outcomes, Report& report) {
  const std::vector<double> latencies = Latencies(outcomes), lags = Lags(outcomes);
  report.Note(what + ": p50, p99, max; the generator's own p99 lag; answers",
              Figure(Quantile(latencies, 0.5)) + ", " + Figure(Quantile(latencies, 0.99)) + ", " +
                  Figure(Quantile(latencies, 1)) + " ms; " + Figure(Quantile(lags, 0.99), "ms") +
                  "; " + TextOf(CodesOf(outcomes)));
}

}  // namespace

void ShortBesideLong(const Settings& settings, Report& report) {
  const ServerProcess server(settings.server, {});
  Caller short_caller(server.address(), 8), long_caller(server.address());
  const std::vector<grpc::ByteBuffer> shorts = ShortAttends(64, 1);
  const grpc::ByteBuffer long_one =
      BytesOf(AttendMessage({.tokens = 65536, .heads = 1, .head_dim = 64}, 2));

  const double capacity = MeasureCapacity(short_caller, kAttend, shorts, 4, settings.phase / 2);
  report.Note("capacity for short ones", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Missing("short ones", "the server answers none", "");

  OpenLoopOptions options = {.method = kAttend, .rate = kLoad * capacity};
  Outcomes alone, beside;
  LongOnes long_alone, long_beside;
  for (int round = 0; round < settings.rounds; ++round) {
    options.seed = static_cast<uint64_t>(round) + 1;
    options.length = settings.phase;
    Append(RunOpenLoop(short_caller, shorts, options), alone);

    options.length = std::chrono::hours(1);
    std::atomic<bool> stop = false;
    auto running = std::async(std::launch::async,
                              [&] { return RunOpenLoop(short_caller, shorts, options, &stop); });
    long_beside.Run(long_caller, long_one, settings.phase);
    stop = true;
    Append(running.get(), beside);

    long_alone.Run(long_caller, long_one, std::chrono::seconds(0));
  }

  NoteLatencies("short ones alone", alone, report);
  NoteLatencies("short ones beside a long one", beside, report);
  report.AtMost("p99 of short ones, added by the long one",
                Quantile(Latencies(beside), 0.99) - Quantile(Latencies(alone), 0.99), kMaxAddedMs,
                "ms");
  report.Note(
      "a long one: alone, beside short ones",
      Figure(long_alone.seconds / static_cast<double>(std::max<int64_t>(1, long_alone.done)), "s") +
          ", " +
          Figure(long_beside.seconds / static_cast<double>(std::max<int64_t>(1, long_beside.done)),
                 "s") +
          "; " + TextOf(long_beside.codes));
  if (long_alone.done == 0) return report.Missing("long ones", TextOf(long_alone.codes), "");
  report.AtLeast("speed of the long one beside them, of that alone",
                 100 * long_beside.PerSecond() / long_alone.PerSecond(), kLeastLongShare, "%");
}

}  // namespace castor::bench
