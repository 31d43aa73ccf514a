// More texts than the server can encode: it must go on answering as many in time as it can, and
// refuse the others at once.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/load/after_jump.h"
#include "tests/bench/load/cpu_share.h"
#include "tests/bench/load/memory_watch.h"
#include "tests/bench/load/pinned.h"

namespace castor::bench {
namespace {

struct LoadStep {
  double load;           // of the peak
  double least_goodput;  // percent of the peak; 0: no bound
};
constexpr std::array<LoadStep, 4> kSteps = {{{0.5, 0}, {1, 0}, {2, 95}, {10, 90}}};
constexpr double kMaxRefusalMs = 5;
constexpr double kMaxLatePercent = 0.1;

// What the server counts, of what this program cannot see; nullopt where it does not.
struct Counters {
  std::optional<double> compute_seconds, wasted_seconds;
  std::optional<double> expired_queued, expired_running;

  explicit Counters(const client::MetricsPage& page)
      : compute_seconds(
            client::SumOf(page, "castor_stage_duration_seconds_sum", "phase=\"compute\"")),
        wasted_seconds(client::SumOf(page, "castor_wasted_compute_seconds_total")),
        expired_queued(client::SumOf(page, "castor_cancelled_total", "stage=\"queued\"")),
        expired_running(client::SumOf(page, "castor_cancelled_total", "stage=\"running\"")) {}
};

// Adds what a counter grew by during a run.
void AddGrowth(std::optional<double> before, std::optional<double> after,
               std::optional<double>& sum) {
  if (after.has_value()) sum = sum.value_or(0) + *after - before.value_or(0);
}

std::string OrNone(std::optional<double> value, std::string (*text)(double)) {
  return value.has_value() ? text(*value) : "n/a";
}

// One load's runs, of all rounds together.
struct LoadRuns {
  Tally tally;
  double goodput = 0;  // the sum of the rounds'
  int rounds = 0;
  AfterJump after_jump;
  Codes codes;
  std::vector<double> lags;
  std::string resident;  // in the last round
  Counters grown{client::MetricsPage()};
  CpuShare cpu;

  void Run(PinnedTextServer& server, double rate, std::chrono::duration<double> length,
           uint64_t seed) {
    const Counters before(server.process().Metrics());
    const CpuTimes cpu_before = server.process().CpuTimesByThread();
    MemoryWatch memory(server.process());
    const Outcomes outcomes = server.Run(rate, length, seed);
    resident = memory.Describe();
    cpu.Add(cpu_before, server.process().CpuTimesByThread());
    const Counters after(server.process().Metrics());
    const Tally run = TallyOf(outcomes);
    Append(run, tally);
    goodput += run.goodput;
    ++rounds;
    after_jump.Add(outcomes);
    for (const auto& [name, count] : CodesOf(outcomes)) codes[name] += count;
    for (const double lag : Lags(outcomes)) lags.push_back(lag);
    for (const auto counter : {&Counters::compute_seconds, &Counters::wasted_seconds,
                               &Counters::expired_queued, &Counters::expired_running}) {
      AddGrowth(before.*counter, after.*counter, grown.*counter);
    }
  }
};

// `peak`: good answers per second.
void ReportLoad(const LoadStep& step, const LoadRuns& runs, double peak, Report& report) {
  const std::string name = Figure(step.load) + "× the peak: ";
  const Tally& tally = runs.tally;
  const double goodput = 100 * runs.goodput / runs.rounds / peak;
  if (step.least_goodput > 0) {
    report.AtLeast(name + "goodput, of the peak", goodput, step.least_goodput, "%");
  } else {
    report.Note(name + "goodput, of the peak", Figure(goodput, "%"));
  }
  if (tally.refused() > 0) {
    report.AtMost(name + "refusals' median, from when they were sent",
                  Quantile(tally.refused_sent_ms, 0.5), kMaxRefusalMs, "ms");
    report.Note(name + "refusals' median, p99 from when they were due; the generator's p99 lag",
                Figure(Quantile(tally.refused_intended_ms, 0.5)) + ", " +
                    Figure(Quantile(tally.refused_intended_ms, 0.99), "ms") + "; " +
                    Figure(Quantile(runs.lags, 0.99), "ms"));
  }
  const auto admitted = static_cast<double>(tally.good + tally.late);
  report.AtMost(name + "late, of those admitted",
                admitted > 0 ? 100 * static_cast<double>(tally.late) / admitted : 100,
                kMaxLatePercent, "%");
  runs.after_jump.Note(name, peak, report);
  report.Note(name + "answers", TextOf(runs.codes));
  const auto seconds = [](double value) { return Figure(value, "s"); };
  report.Note(
      name + "the server's count of expired ones: queued, running; computing in vain, in all",
      OrNone(runs.grown.expired_queued, Whole) + ", " + OrNone(runs.grown.expired_running, Whole) +
          "; " + OrNone(runs.grown.wasted_seconds, seconds) + ", " +
          OrNone(runs.grown.compute_seconds, seconds));
  runs.cpu.Note(name, runs.lags.size(), report);
  report.Note(name + "resident in the last round", runs.resident);
}

}  // namespace

void Overload(const Settings& settings, Report& report) {
  PinnedTextServer server(settings);
  const double capacity = server.Capacity(settings.phase);
  report.Note("closed loop", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Missing("texts", "the server answers none", "");

  // Every round measures the peak again: the machine's speed drifts.
  std::array<double, 4> peaks{};  // sums of goodput
  std::array<LoadRuns, kSteps.size()> loads;
  for (int round = 0; round < settings.rounds; ++round) {
    const auto seed = static_cast<uint64_t>(round) + 1;
    for (size_t i = 0; i < peaks.size(); ++i) {
      const double share = 0.8 + 0.1 * static_cast<double>(i);
      peaks[i] += TallyOf(server.Run(share * capacity, settings.phase, seed)).goodput;
    }
    const double peak = *std::max_element(peaks.begin(), peaks.end()) / (round + 1);
    if (peak <= 0) return report.Missing("goodput", "none", "");
    for (size_t i = 0; i < loads.size(); ++i) {
      loads[i].Run(server, kSteps[i].load * peak, settings.phase, seed + 1000);
    }
  }
  const double peak = *std::max_element(peaks.begin(), peaks.end()) / settings.rounds;
  report.Note("peak: the best goodput at 0.8 to 1.1 of that", Figure(peak, "/s"));
  for (size_t i = 0; i < loads.size(); ++i) ReportLoad(kSteps[i], loads[i], peak, report);
}

}  // namespace castor::bench
