// Finds the highest rate at which every class meets its objectives: doubles the rate until one
// misses, bisects, and confirms the answer by a longer run. The caller supplies how to run and how
// to judge a run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"

namespace castor::load {

// Sends at `rate` requests per second for `duration`, with a new seed each time. Its exceptions end
// the search.
using RunAt = std::function<RunData(double rate, std::chrono::nanoseconds duration)>;
using JudgeRun = std::function<Verdict(const RunData&)>;

struct SearchOptions {
  double start_rate = 10;  // requests/s; near the answer saves runs
  double least_rate = 0.01;
  double greatest_rate = 1e6;
  double tolerance = 0.02;             // ends when the rates that missed and met are this close
  double requests = 0;                 // that a run's percentiles need; slow rates take longer runs
  std::chrono::nanoseconds warm_up{};  // before each run
  std::chrono::nanoseconds probe{std::chrono::seconds(15)};
  std::chrono::nanoseconds confirmation{std::chrono::seconds(60)};
  int longer_probes = 2;  // after an unclear one, each twice as long
  std::chrono::nanoseconds max_time{std::chrono::hours(1)};  // sum of the runs' durations
};

enum class ProbeResult {
  kMet,
  kUnclear,  // too few requests to tell
  kMissed,
  kClientLimit,  // the client did not keep up
  kInvalid,      // no other rate would help
};
const char* NameOf(ProbeResult result);

// One run of the search.
struct Probe {
  double rate = 0;
  std::chrono::nanoseconds duration{};
  bool confirms = false;                      // the longer run at the answer
  std::chrono::nanoseconds retry_duration{};  // length of the next run if this is unclear, else 0
  ProbeResult result = ProbeResult::kMet;
  double goodput = 0;              // good answers/s
  int64_t p50_ns = 0, p99_ns = 0;  // of OK answers, all classes, from the intended time
  std::vector<Finding> failed{};   // why the result is not kMet
};

struct FoundRate {
  int exit_code = 0;  // of the program: see README.md
  std::string text;   // the result as a sentence
  double met = 0;     // the highest rate that met all objectives; 0: none did
  double missed = 0;  // the lowest above it that did not; 0: none was tried
  std::vector<Probe> probes;
  std::optional<RunData> run;  // the confirmation
};

// The time of a search whose answer is near --start-rate, warm-ups included.
std::chrono::nanoseconds ExpectedTime(const SearchOptions& options);

// Calls `on_probe` after each run. `stop` ends the search after the current run, which should end
// early too. REQUIRES: rates and times above 0, 0 < tolerance < 1.
FoundRate FindRate(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
                   const std::function<void(const Probe&)>& on_probe,
                   const std::atomic<bool>& stop);

}  // namespace castor::load
