// The highest rate at which every class meets its objectives: doubling until one misses, bisection
// between, and a longer run at the answer, which must meet them as well. How a run is made and how
// it is judged are passed in.
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

// Sends at `rate` requests per second for `duration`, with a seed of its own each time. What it
// throws ends the search.
using RunAt = std::function<RunData(double rate, std::chrono::nanoseconds duration)>;
using JudgeRun = std::function<Verdict(const RunData&)>;

struct SearchOptions {
  double start_rate = 10;  // requests/s; near the answer saves runs
  double least_rate = 0.01;
  double greatest_rate = 1e6;
  double tolerance = 0.02;  // ends when the rates that missed and met are this close
  double requests = 0;      // that a run needs, for its percentiles to be known; longer where slow
  std::chrono::nanoseconds probe{std::chrono::seconds(15)};
  std::chrono::nanoseconds confirmation{std::chrono::seconds(60)};
  int longer_probes = 2;  // of a rate that is too near the edge to tell, each twice as long
  std::chrono::nanoseconds max_time{std::chrono::hours(1)};  // sum of the runs' durations
};

enum class ProbeResult {
  kMet,
  kUnclear,  // too few requests to tell
  kMissed,
  kClientLimit,  // the client did not keep up: says nothing about the server
  kInvalid,      // something is wrong that no other rate would mend
};
const char* NameOf(ProbeResult result);

// One run of the search.
struct Probe {
  double rate = 0;
  std::chrono::nanoseconds duration{};
  bool confirms = false;  // it is the longer run at the answer
  std::chrono::nanoseconds
      retry_duration{};  // if it is unclear: the length of the run that follows; or 0
  ProbeResult result = ProbeResult::kMet;
  double goodput = 0;              // good answers/s
  int64_t p50_ns = 0, p99_ns = 0;  // of OK answers, all classes, from the intended time
  std::vector<Finding> failed{};   // why it is not kMet
};

struct FoundRate {
  int exit_code = 0;  // of the program: see README.md
  std::string text;   // the finding as a sentence
  double met = 0;     // the highest rate that met all objectives; 0: none did
  double missed = 0;  // the lowest above it that did not; 0: none was tried
  std::vector<Probe> probes;
  std::optional<RunData> run;  // the confirmation
};

// `on_probe` is called after each run; `stop` ends the search after the run that goes on, which
// should end early too. REQUIRES: rates and times above 0, 0 < tolerance < 1.
FoundRate FindRate(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
                   const std::function<void(const Probe&)>& on_probe,
                   const std::atomic<bool>& stop);

}  // namespace castor::load
