#include "client/load/search/find_rate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "client/cli/report.h"
#include "client/load/commands/command.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

constexpr int kMaxConfirmations = 8;  // each at a lower rate
constexpr char kClientWasTheLimit[] =
    ": the client was the limit, and the server may be capable of more. Use more --threads, or "
    "another machine to send from";

// The length of a run at `rate`, at least `least`. Random arrivals need three standard deviations
// more requests.
nanoseconds LengthOf(double rate, nanoseconds least, const SearchOptions& options) {
  const double seconds = std::ceil((options.requests + 3 * std::sqrt(options.requests)) / rate);
  return std::max(least, nanoseconds(std::llround(std::min(seconds, 1e9) * 1e9)));
}

struct EndOfSearch {
  int exit_code;
  std::string text;
};

std::string PerSecond(double rate) { return cli::FormatReal(rate, "%.4g/s"); }

class Search {
 public:
  Search(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
         const std::function<void(const Probe&)>& on_probe, const std::atomic<bool>& stop)
      : run_at_(run_at), judge_(judge), options_(options), on_probe_(on_probe), stop_(stop) {}

  FoundRate Run() {
    try {
      FindRange();
      Bisect();
      Confirm();
      if (upper_ == ProbeResult::kClientLimit) End(kInvalid, kClientWasTheLimit);
      End(kMet,
          found_.missed > 0 ? "" : ": raise --greatest-rate, " + PerSecond(options_.greatest_rate));
    } catch (const EndOfSearch& end) {
      found_.exit_code = end.exit_code;
      found_.text = end.text;
    }
    return std::move(found_);
  }

 private:
  // Doubles the rate until it misses, or halves it until it meets.
  void FindRange() {
    double rate = options_.start_rate;
    while (Meets(rate)) {
      if (rate >= options_.greatest_rate) return;
      rate = std::min(2 * rate, options_.greatest_rate);
    }
    while (found_.met == 0) {
      if (rate <= options_.least_rate) {
        if (upper_ == ProbeResult::kClientLimit) End(kInvalid, kClientWasTheLimit);
        End(upper_ == ProbeResult::kUnclear ? kInvalid : kMissed,
            ", down to " + PerSecond(options_.least_rate));
      }
      rate = std::max(rate / 2, options_.least_rate);
      (void)Meets(rate);
    }
  }

  void Bisect() {
    while (found_.missed > found_.met * (1 + options_.tolerance)) {
      (void)Meets(std::sqrt(found_.met * found_.missed));
    }
  }

  // Steps down, by growing steps, until a longer run meets the objectives too.
  void Confirm() {
    double step = options_.tolerance;
    double rate = found_.met;
    for (int i = 0; i < kMaxConfirmations && rate >= options_.least_rate; ++i) {
      if (Meets(rate, /*confirms=*/true)) return;
      found_.met = 0;
      for (const Probe& probe : found_.probes) {  // fall back to what a shorter run met below
        if (probe.result == ProbeResult::kMet && probe.rate < rate) {
          found_.met = std::max(found_.met, probe.rate);
        }
      }
      rate /= 1 + step;
      step *= 2;
    }
    throw EndOfSearch{kMissed, "no confirming run met the objectives, down to " +
                                   PerSecond(found_.probes.back().rate) +
                                   ": the server varies from run to run, or the probes are "
                                   "too short"};
  }

  // Whether the rate meets the objectives; moves an end of the interval.
  bool Meets(double rate, bool confirms = false) {
    const ProbeResult result = ProbeRate(rate, confirms);
    if (result == ProbeResult::kInvalid) {
      std::string failures;
      for (const Finding& finding : found_.probes.back().failed) {
        failures += (failures.empty() ? "" : "; ") + finding.rule + ": " + finding.text;
      }
      throw EndOfSearch{kInvalid, "the runs are INVALID at " + PerSecond(rate) + " (" + failures +
                                      "); before that, " + Interval()};
    }
    if (result == ProbeResult::kMet) {
      found_.met = rate;
      return true;
    }
    found_.missed = rate;
    upper_ = result;
    return false;
  }

  // Runs at a rate until it is clear whether it meets, with longer runs where it is not.
  ProbeResult ProbeRate(double rate, bool confirms) {
    nanoseconds duration =
        LengthOf(rate, confirms ? options_.confirmation : options_.probe, options_);
    bool repeated = false;
    for (int longer = 0;; ++longer) {
      const bool last = longer >= options_.longer_probes;
      const ProbeResult result =
          RunOnce(rate, duration, confirms, last ? nanoseconds(0) : 2 * duration);
      if (result == ProbeResult::kClientLimit || result == ProbeResult::kInvalid) {
        if (std::exchange(repeated, true)) return result;
        --longer;  // this machine may have been busy: try again once
        continue;
      }
      if (result != ProbeResult::kUnclear || last) return result;
      duration *= 2;
    }
  }

  // `retry_duration`: the length of the next run if this one leaves it unclear.
  ProbeResult RunOnce(double rate, nanoseconds duration, bool confirms,
                      nanoseconds retry_duration) {
    if (stop_.load()) End(kInterrupted, ": stopped");
    if (time_ + duration > options_.max_time) {
      const std::string why = "a run of " + cli::ClockText(InSeconds(duration)) + " at " +
                              PerSecond(rate) + " would exceed --max-time";
      if (found_.probes.empty()) throw EndOfSearch{kInvalid, why};
      End(kMissed, (found_.met > 0 ? ", without a confirming run: " : ": ") + why);
    }
    time_ += duration;
    RunData run = run_at_(rate, duration);
    if (stop_.load()) End(kInterrupted, ": stopped");  // the interrupted run says nothing
    const Verdict verdict = judge_(run);

    Probe probe{.rate = rate, .duration = duration, .confirms = confirms};
    const auto worst = [&](ProbeResult result) { probe.result = std::max(probe.result, result); };
    for (const Finding& finding : verdict.validity) {
      if (finding.passed) continue;
      probe.failed.push_back(finding);
      if (finding.cause == Cause::kTooShort) worst(ProbeResult::kUnclear);
      if (finding.cause == Cause::kOverload) worst(ProbeResult::kMissed);
      if (finding.cause == Cause::kClient) worst(ProbeResult::kClientLimit);
      if (finding.cause == Cause::kOther) worst(ProbeResult::kInvalid);
    }
    for (const Finding& finding : verdict.objectives) {
      if (finding.passed) continue;
      probe.failed.push_back(finding);
      worst(finding.unsure ? ProbeResult::kUnclear : ProbeResult::kMissed);
    }
    if (probe.result == ProbeResult::kUnclear) probe.retry_duration = retry_duration;
    const Cell total = run.Total();
    probe.goodput = static_cast<double>(total.good) / std::max(run.asked_seconds, 1e-9);
    probe.p50_ns = total.intended.ValueAt(0.5);
    probe.p99_ns = total.intended.ValueAt(0.99);
    found_.probes.push_back(std::move(probe));
    if (confirms) found_.run = std::move(run);
    if (on_probe_) on_probe_(found_.probes.back());
    return found_.probes.back().result;
  }

  std::string Interval() const {
    if (found_.met == 0 && upper_ == ProbeResult::kUnclear) {
      return "too few requests to tell whether a rate met the objectives";
    }
    if (found_.met == 0) return "no rate met the objectives";
    return "the objectives were met at " + PerSecond(found_.met) +
           (found_.missed == 0 ? " and missed at no rate that was tried"
            : upper_ == ProbeResult::kClientLimit
                ? ", and the client did not keep up with " + PerSecond(found_.missed)
            : upper_ == ProbeResult::kUnclear
                ? ", and too few requests to tell at " + PerSecond(found_.missed)
                : " and missed at " + PerSecond(found_.missed));
  }
  [[noreturn]] void End(int exit_code, const std::string& more) const {
    throw EndOfSearch{exit_code, Interval() + more};
  }

  const RunAt& run_at_;
  const JudgeRun& judge_;
  const SearchOptions& options_;
  const std::function<void(const Probe&)>& on_probe_;
  const std::atomic<bool>& stop_;

  FoundRate found_;
  ProbeResult upper_ = ProbeResult::kMissed;  // why found_.missed missed
  nanoseconds time_{0};
};

}  // namespace

const char* NameOf(ProbeResult result) {
  static constexpr const char* kNames[] = {"met", "unclear", "missed", "client limit", "invalid"};
  return kNames[static_cast<size_t>(result)];
}

nanoseconds ExpectedTime(const SearchOptions& options) {
  // One doubling that meets or misses, bisections from a factor of 2, and the confirmation.
  const double bisections = std::log2(std::log(2) / std::log1p(options.tolerance));
  const auto probes = static_cast<int64_t>(std::max(0.0, std::ceil(bisections))) + 1;
  return probes * (LengthOf(options.start_rate, options.probe, options) + options.warm_up) +
         LengthOf(options.start_rate, options.confirmation, options) + options.warm_up;
}

FoundRate FindRate(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
                   const std::function<void(const Probe&)>& on_probe,
                   const std::atomic<bool>& stop) {
  return Search(run_at, judge, options, on_probe, stop).Run();
}

}  // namespace castor::load
