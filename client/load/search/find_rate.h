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

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

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
  std::chrono::nanoseconds probe{std::chrono::seconds(15)};
  std::chrono::nanoseconds confirmation{std::chrono::seconds(60)};
  int longer_probes = 2;  // of a rate that is too near the edge to tell, each twice as long
  int max_runs = 60;
  std::chrono::nanoseconds max_time{std::chrono::hours(1)};  // sum of the runs' durations
};

enum class ProbePurpose { kRange, kBisection, kConfirmation };

enum class ProbeResult {
  kMet,
  kMissed,
  kClientLimit,  // the client did not keep up: says nothing about the server
  kInvalid,      // something is wrong that no other rate would mend
};

// One run of the search.
struct Probe {
  ProbePurpose purpose = ProbePurpose::kRange;
  double rate = 0;
  std::chrono::nanoseconds duration{};
  ProbeResult result = ProbeResult::kMet;  // of this rate, by all runs at it so far
  double worst = 0;       // share of requests that missed a goal over the share that may: 1: edge
  double sureness = 0;    // of `worst`, in standard errors from the edge; negative: missed
  double throughput = 0;  // OK answers/s
  double goodput = 0;     // good answers/s
  int64_t p50_ns = 0, p99_ns = 0;  // of OK answers, all classes, from the intended time
  std::vector<Finding> failed{};   // what the verdict did not pass
};

enum class SearchEnd {
  kFound,
  kMetAtGreatest,  // met at greatest_rate: the answer is at least that
  kNeverMet,       // not even at least_rate
  kClientLimit,    // no faster than the client could send: the server may be capable of more
  kInvalid,        // runs that cannot be believed at any rate, see `text`
  kNotConfirmed,   // the longer runs missed again and again
  kOutOfRuns,
  kOutOfTime,
  kStopped,
};

// What the search has found so far, and at its end.
struct FoundRate {
  SearchEnd end = SearchEnd::kStopped;
  double met = 0;          // the highest rate that met all objectives; 0: none did
  double missed = 0;       // the lowest above it that did not; 0: none was tried
  bool confirmed = false;  // by a longer run at `met`
  std::vector<Probe> probes;
  std::string text;            // the finding as a sentence
  std::optional<RunData> run;  // the confirmation
};

// Called before each run with what it will be, and after each with `done`.
struct SearchStep {
  ProbePurpose purpose;
  double rate;
  std::chrono::nanoseconds duration;
  const FoundRate& so_far;
  const Probe* done;  // null before the run
};
using OnSearchStep = std::function<void(const SearchStep&)>;

// Names as reports show them: "bisection", "client limit", "found".
const char* NameOf(ProbePurpose purpose);
const char* NameOf(ProbeResult result);
const char* NameOf(SearchEnd end);

// `stop` ends the search after the run that goes on, which should end early too. Throws
// std::invalid_argument when `options` make no sense.
FoundRate FindRate(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
                   const OnSearchStep& on_step, const std::atomic<bool>& stop);

}  // namespace castor::load
