#include "client/load/search/find_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "client/load/search/cause.h"
#include "client/load/search/evidence.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

constexpr double kSure = 2;           // standard errors from the edge
constexpr int kMaxConfirmations = 8;  // each lower than the one before

struct EndOfSearch {
  SearchEnd end;
};

std::string RateText(double rate) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g/s", rate);
  return text;
}

class Search {
 public:
  Search(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
         const OnSearchStep& on_step, const std::atomic<bool>& stop)
      : run_at_(run_at), judge_(judge), options_(options), on_step_(on_step), stop_(stop) {}

  FoundRate Run() {
    try {
      FindRange();
      Bisect();
      Confirm();
      found_.end = upper_is_client_ ? SearchEnd::kClientLimit : SearchEnd::kFound;
    } catch (const EndOfSearch& end) {
      found_.end = end.end;
    }
    found_.text = Sentence();
    return std::move(found_);
  }

 private:
  // What one run says by itself.
  struct Seen {
    ProbeResult result;
    bool sure;
    bool long_enough;
  };

  // Doubles from the start until a rate misses, or halves until one meets.
  void FindRange() {
    double rate = options_.start_rate;
    while (Take(rate, Look(ProbePurpose::kRange, rate))) {
      if (rate >= options_.greatest_rate) {
        Confirm();
        throw EndOfSearch{found_.missed > 0 ? SearchEnd::kFound : SearchEnd::kMetAtGreatest};
      }
      rate = std::min(2 * rate, options_.greatest_rate);
    }
    while (found_.met == 0) {
      if (rate <= options_.least_rate) {
        throw EndOfSearch{upper_is_client_ ? SearchEnd::kClientLimit : SearchEnd::kNeverMet};
      }
      rate = std::max(rate / 2, options_.least_rate);
      Take(rate, Look(ProbePurpose::kRange, rate));
    }
  }

  void Bisect() {
    while (found_.missed > found_.met * (1 + options_.tolerance)) {
      const double rate = std::sqrt(found_.met * found_.missed);
      Take(rate, Look(ProbePurpose::kBisection, rate));
    }
  }

  // Steps down until a longer run meets the objectives too: by the tolerance while it is in doubt
  // whether they are missed at all, by ever more where it is not.
  void Confirm() {
    double step = options_.tolerance;
    double rate = found_.met;
    for (int i = 0; i < kMaxConfirmations && rate >= options_.least_rate; ++i) {
      if (Take(rate, Look(ProbePurpose::kConfirmation, rate))) {
        found_.confirmed = true;
        return;
      }
      // What shorter runs have met below.
      found_.met = 0;
      for (const Probe& probe : found_.probes) {
        if (probe.result == ProbeResult::kMet && probe.rate < rate) {
          found_.met = std::max(found_.met, probe.rate);
        }
      }
      if (found_.probes.back().sureness <= -kSure) step *= 2;
      rate /= 1 + step;
    }
    throw EndOfSearch{SearchEnd::kNotConfirmed};
  }

  // Moves the interval's end; true if the rate met.
  bool Take(double rate, ProbeResult result) {
    if (result == ProbeResult::kInvalid) throw EndOfSearch{SearchEnd::kInvalid};
    if (result == ProbeResult::kMet) {
      found_.met = rate;
      return true;
    }
    found_.missed = rate;
    upper_is_client_ = result == ProbeResult::kClientLimit;
    return false;
  }

  // Runs at a rate until it is known whether it meets, with longer runs where that is in doubt.
  ProbeResult Look(ProbePurpose purpose, double rate) {
    const bool confirms = purpose == ProbePurpose::kConfirmation;
    nanoseconds duration = confirms ? options_.confirmation : options_.probe;
    Evidence evidence;
    bool repeated = false;
    ProbeResult result;
    for (int longer = 0;; ++longer) {
      const Seen seen = RunOnce(purpose, rate, duration, evidence);
      result = seen.result;
      if (result == ProbeResult::kClientLimit || result == ProbeResult::kInvalid) {
        // Once may be this machine's bad moment.
        if (std::exchange(repeated, true)) return result;
        --longer;
        continue;
      }
      if (seen.sure && seen.long_enough) return result;
      // On the way up the next rate will tell, and the last rate is confirmed in any case.
      if (purpose == ProbePurpose::kRange && result == ProbeResult::kMet) return result;
      // A confirmation is the longest look there is, unless it had too few requests to say.
      if (confirms && seen.long_enough) return result;
      if (longer >= options_.longer_probes) break;
      duration *= 2;
    }
    return result;
  }

  Seen RunOnce(ProbePurpose purpose, double rate, nanoseconds duration, Evidence& evidence) {
    if (stop_.load()) throw EndOfSearch{SearchEnd::kStopped};
    if (static_cast<int>(found_.probes.size()) >= options_.max_runs) {
      throw EndOfSearch{SearchEnd::kOutOfRuns};
    }
    if (time_ + duration > options_.max_time) throw EndOfSearch{SearchEnd::kOutOfTime};
    time_ += duration;
    if (on_step_) on_step_({purpose, rate, duration, found_, nullptr});
    RunData run = run_at_(rate, duration);
    // A run that was broken off says nothing.
    if (stop_.load()) throw EndOfSearch{SearchEnd::kStopped};
    const Verdict verdict = judge_(run);

    bool causes[4] = {};
    Probe probe{.purpose = purpose, .rate = rate, .duration = duration};
    for (const Finding& finding : verdict.validity) {
      if (finding.passed) continue;
      causes[static_cast<int>(CauseOf(finding.rule))] = true;
      probe.failed.push_back(finding);
    }
    for (const Finding& finding : verdict.objectives) {
      if (!finding.passed) probe.failed.push_back(finding);
    }
    const auto failed = [&](Cause cause) { return causes[static_cast<int>(cause)]; };

    Seen seen{.result = ProbeResult::kMet, .sure = true, .long_enough = !failed(Cause::kTooShort)};
    if (failed(Cause::kOther)) {
      seen.result = ProbeResult::kInvalid;
    } else if (failed(Cause::kClient)) {
      seen.result = ProbeResult::kClientLimit;
    } else {
      evidence.Add(run);
      const double sureness = evidence.Sureness();
      seen.sure = std::abs(sureness) >= kSure;
      const bool alone = purpose == ProbePurpose::kConfirmation || std::isinf(sureness) ||
                         duration == options_.probe;
      const bool met = alone ? verdict.met() : sureness >= 0;
      // Work that piles up is not sure either: it may have been a busy moment.
      if (failed(Cause::kOverload)) seen.sure = seen.sure && sureness < 0;
      if (!met || failed(Cause::kOverload)) seen.result = ProbeResult::kMissed;
      probe.worst = evidence.Worst();
      probe.sureness = sureness;
    }
    probe.result = seen.result;
    const Cell total = run.Total();
    const double seconds = std::max(run.asked_seconds, 1e-9);
    probe.throughput = static_cast<double>(total.of(Outcome::kOk)) / seconds;
    probe.goodput = static_cast<double>(total.good) / seconds;
    probe.p50_ns = total.intended.ValueAt(0.5);
    probe.p99_ns = total.intended.ValueAt(0.99);
    found_.probes.push_back(std::move(probe));
    if (purpose == ProbePurpose::kConfirmation) found_.run = std::move(run);
    if (on_step_) on_step_({purpose, rate, duration, found_, &found_.probes.back()});
    return seen;
  }

  std::string LastFailures() const {
    std::string text;
    if (found_.probes.empty()) return text;
    for (const Finding& finding : found_.probes.back().failed) {
      text += (text.empty() ? "" : "; ") + finding.rule + ": " + finding.text;
    }
    return text;
  }

  std::string Sentence() const {
    const std::string interval =
        found_.met == 0
            ? "no rate met the objectives"
            : "the objectives were met at " + RateText(found_.met) +
                  (found_.confirmed ? "" : ", which no longer run has confirmed,") +
                  (found_.missed == 0 ? " and missed at no rate that was tried"
                   : upper_is_client_
                       ? ", and the client did not keep up with " + RateText(found_.missed)
                       : " and missed at " + RateText(found_.missed));
    switch (found_.end) {
      case SearchEnd::kFound:
        return interval;
      case SearchEnd::kMetAtGreatest:
        return interval + ": raise the greatest rate, " + RateText(options_.greatest_rate);
      case SearchEnd::kNeverMet:
        return "no rate met the objectives, down to " + RateText(options_.least_rate);
      case SearchEnd::kClientLimit:
        return interval +
               ": the client was the limit, and the server may be capable of more. Use "
               "more threads, workers or hosts to send from";
      case SearchEnd::kInvalid:
        return "the runs are INVALID at " + RateText(found_.probes.back().rate) + " (" +
               LastFailures() + "); before that, " + interval;
      case SearchEnd::kNotConfirmed:
        return "no longer run met the objectives, down to " + RateText(found_.probes.back().rate) +
               ": the server is not the same from one run to the next, or the probes are too short";
      case SearchEnd::kOutOfRuns:
        return interval + ": ended after " + std::to_string(options_.max_runs) + " runs";
      case SearchEnd::kOutOfTime:
        return interval + ": ended, for the next run would have taken longer than the search may";
      case SearchEnd::kStopped:
        return interval + ": stopped";
    }
    return interval;
  }

  const RunAt& run_at_;
  const JudgeRun& judge_;
  const SearchOptions& options_;
  const OnSearchStep& on_step_;
  const std::atomic<bool>& stop_;

  FoundRate found_;
  bool upper_is_client_ = false;  // found_.missed is a rate that the client did not keep up with
  nanoseconds time_{0};
};

}  // namespace

const char* NameOf(ProbePurpose purpose) {
  switch (purpose) {
    case ProbePurpose::kRange:
      return "range";
    case ProbePurpose::kBisection:
      return "bisection";
    case ProbePurpose::kConfirmation:
      return "confirmation";
  }
  return "";
}

const char* NameOf(ProbeResult result) {
  switch (result) {
    case ProbeResult::kMet:
      return "met";
    case ProbeResult::kMissed:
      return "missed";
    case ProbeResult::kClientLimit:
      return "client limit";
    case ProbeResult::kInvalid:
      return "invalid";
  }
  return "";
}

const char* NameOf(SearchEnd end) {
  switch (end) {
    case SearchEnd::kFound:
      return "found";
    case SearchEnd::kMetAtGreatest:
      return "met at the greatest rate";
    case SearchEnd::kNeverMet:
      return "never met";
    case SearchEnd::kClientLimit:
      return "client limit";
    case SearchEnd::kInvalid:
      return "invalid";
    case SearchEnd::kNotConfirmed:
      return "not confirmed";
    case SearchEnd::kOutOfRuns:
      return "out of runs";
    case SearchEnd::kOutOfTime:
      return "out of time";
    case SearchEnd::kStopped:
      return "stopped";
  }
  return "";
}

FoundRate FindRate(const RunAt& run_at, const JudgeRun& judge, const SearchOptions& options,
                   const OnSearchStep& on_step, const std::atomic<bool>& stop) {
  const bool rates = options.least_rate > 0 && options.start_rate >= options.least_rate &&
                     options.greatest_rate >= options.start_rate;
  if (!rates) throw std::invalid_argument("the search needs 0 < least <= start <= greatest rate");
  if (!(options.tolerance > 0 && options.tolerance < 1)) {
    throw std::invalid_argument("the search's tolerance must lie between 0 and 1");
  }
  if (options.probe <= nanoseconds(0) || options.confirmation < options.probe) {
    throw std::invalid_argument(
        "the search needs probes that take time, and a confirmation that "
        "takes at least as long as a probe");
  }
  return Search(run_at, judge, options, on_step, stop).Run();
}

}  // namespace castor::load
