// Short requests during a long one, and alone.

#include <future>

#include "tests/bench/load/bench.h"

namespace castor::bench {
namespace {

constexpr double kLoad = 0.3;  // of the capacity for short ones
constexpr double kMaxAddedMs = 10;
constexpr double kLeastLongShare = 60;  // percent of its speed alone

// Long requests, one after another, and to the end of the one in flight when `length` has passed:
// so nothing is left half done, and its part need not be guessed.
struct LongOnes {
  double done = 0, seconds = 0;

  void Add(const Calls& calls) {
    for (const Outcome& call : calls.calls) done += call.code == grpc::StatusCode::OK ? 1 : 0;
    if (calls.calls.empty()) return;
    seconds += Milliseconds(calls.calls.back().ended - calls.begin) / 1000;
  }
  double PerSecond() const { return seconds > 0 ? done / seconds : 0; }
};

void NoteLatencies(const std::string& what, const Calls& calls, Report& report) {
  const std::vector<double> latencies = calls.Latencies();
  report.Note(what + ": p50, p99, max; the generator's p99 lag; answers",
              Figure(Quantile(latencies, 0.5)) + ", " + Figure(Quantile(latencies, 0.99)) + ", " +
                  Figure(Quantile(latencies, 1)) + " ms; " + Figure(calls.P99Lag(), "ms") + "; " +
                  calls.Codes());
}

}  // namespace

// The short ones must hardly notice the long one, which must still get most of the machine.
void ShortDuringLong(const Settings& settings, Report& report) {
  const Server server(settings.server, {});
  Traffic shorts = {.payloads = ShortAttends(64, 1)};
  const Traffic long_one = {.payloads = {Attend(65'536, 1, 64, 2)},
                            .deadline = std::chrono::seconds(300),
                            .connections = 1};
  const double capacity = Capacity(server, shorts, 4, settings.phase / 2);
  report.Note("capacity for short ones", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Check("short ones", false, "the server answers none");
  Calls alone, during;
  LongOnes long_alone, long_shared;
  for (int round = 0; round < settings.rounds; ++round) {
    shorts.seed = static_cast<uint64_t>(round) + 1;
    alone.Append(RunOpen(server, shorts, kLoad * capacity, settings.phase));
    std::atomic<bool> stop = false;
    auto running = std::async(std::launch::async, [&] {
      return RunOpen(server, shorts, kLoad * capacity, std::chrono::minutes(5), false, &stop);
    });
    long_shared.Add(RunClosed(server, long_one, 1, settings.phase));
    stop = true;
    during.Append(running.get());
    long_alone.Add(RunClosed(server, long_one, 1, std::chrono::milliseconds(10)));
  }
  NoteLatencies("short ones alone", alone, report);
  NoteLatencies("short ones during a long one", during, report);
  report.AtMost("p99 of short ones, added by the long one",
                Quantile(during.Latencies(), 0.99) - Quantile(alone.Latencies(), 0.99), kMaxAddedMs,
                "ms");
  report.Note("a long one alone, with short ones", Figure(1 / long_alone.PerSecond(), "s") + ", " +
                                                       Figure(1 / long_shared.PerSecond(), "s"));
  report.AtLeast("speed of the long one with them / alone",
                 100 * long_shared.PerSecond() / long_alone.PerSecond(), kLeastLongShare, "%");
}

}  // namespace castor::bench
