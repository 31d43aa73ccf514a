// What a request will take of the device, before it is admitted: time and memory, in one estimate.
//
// Time is work, counted in terms, at prices that were measured when the engine started
// (cost_model.h, encoder_costs.h), times a factor learned from recent runs (TimeFactors). Memory
// is an upper bound, counted from lengths (memory.h).
//
// The automatic kernel's choice does not depend on what is learned: it uses the prices alone, which
// never change while the engine runs.
//
// Any thread. One short lock, not held while terms are counted.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/attention/resolve.h"
#include "engine/automatic/plan.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/encoder/text/prepare.h"
#include "engine/forecast/cost_model.h"
#include "engine/forecast/encoder_costs.h"
#include "engine/forecast/memory.h"
#include "engine/ledger/device_memory.h"
#include "engine/ledger/job.h"
#include "engine/models/models.h"
#include "engine/request.h"

namespace castor {

// What recent runs say of the predictions of one kind of work: a factor for each size class
// (TimeClassOf). Its logarithm is the exponentially weighted moving average of
// log(measured / predicted) (S. W. Roberts, "Control Chart Tests Based on Geometric Moving
// Averages", Technometrics 1959). A run also counts for the classes around its own, for less with
// each step: what is wrong with all sizes is learned soon.
//
// Not thread-safe.
class TimeFactors {
 public:
  // How wrong predictions without a factor may be, as a factor, and how many runs they are worth.
  struct Trust {
    double most;
    double runs;
  };

  explicit TimeFactors(Trust trust) : trust_(trust) {}

  // The factor for predictions of about `us`; 1 before the first run.
  double Of(double us) const { return std::exp(classes_[TimeClassOf(us)].log_factor); }

  // What was predicted as `us`, without a factor, took `ratio` times as long. `weight`, from 0 to
  // 1, is the share of the run that it explains.
  void Learn(double us, double ratio, double weight) {
    if (!(ratio > 0) || !std::isfinite(ratio) || !(weight > 0)) return;
    const double most = std::log(trust_.most);
    const double log_ratio = std::clamp(std::log(ratio), -most, most);
    weight = std::min(weight, 1.0);
    const size_t own = TimeClassOf(us);
    double share = weight;
    for (size_t step = 0; step < classes_.size(); ++step, share *= kOfNext) {
      if (own + step < classes_.size()) classes_[own + step].Learn(log_ratio, share, trust_.runs);
      if (step > 0 && own >= step) classes_[own - step].Learn(log_ratio, share, trust_.runs);
    }
  }

 private:
  // The weight of one more run: that of a mean at first, then constant. So a change of the
  // machine's speed is followed within some twenty runs, and a single slow run hardly matters.
  static constexpr double kLeastStep = 0.05;

  // What a run counts for the next class, in proportion to its own. Of 0.5 to 0.85, replayed on
  // runs of prediction_bench after good calibrations and a bad one, any will do.
  static constexpr double kOfNext = 0.6;

  struct Class {
    double log_factor = 0;
    double seen = 0;  // sum of weights

    void Learn(double log_ratio, double share, double trusted_runs) {
      log_factor +=
          share * std::max(kLeastStep, 1 / (seen + trusted_runs + 1)) * (log_ratio - log_factor);
      seen += share;
    }
  };

  Trust trust_;
  std::array<Class, kTimeClasses> classes_{};
};

struct Estimate {
  PredictedTime time;  // of one run, with the probe of its error
  MemoryNeed memory;   // enough for every kernel that may run
};

class Forecast {
 public:
  // `variants` are the device's and outlive the object. `copies`: Device::copies_tensors. Kernels
  // and models that the two price lists lack have assumed prices, and factors that may grow large.
  Forecast(std::span<const attention::Variant> variants, bool copies, CostModel costs,
           EncoderPrices encoders)
      : memory_(variants, copies), costs_(std::move(costs)), encoders_(std::move(encoders)) {}

  // The estimate of an attention request. For the automatic kernel, the time of its first choice.
  // Runs that may follow, where an error is too large, are not included: whether there will be any
  // depends on the input alone.
  Estimate Of(const Plan& plan, const attention::Resolved& resolved) const;

  // Of an encode request whose sequences have these offsets. Requires its input.
  Estimate Of(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const;

  // Of a job's next run, with the kernel that it has now.
  Estimate Of(const Job& job) const;

  // Without what was learned.
  PredictedTime Base(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                     std::span<const int32_t> cu_seqlens_k,
                     std::span<const attention::Place> places = {}) const;
  PredictedTime Base(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const;

  // What is to be learned from a batch that has run. Holds nothing of its jobs.
  class Lesson;

  // A batch has run, without probes, in so much time, pauses excluded. Before the jobs' kernels
  // change.
  Lesson LessonOf(const JobList& jobs, double compute_us) const;

  // Engine thread. Times of zero or less are ignored.
  void Learn(const Lesson& lesson);

  // The offsets of an encode request's sequences. Of texts, those that they are expected to have
  // once they are tokenized, by their bytes and those of the prompt before each.
  std::vector<int32_t> ExpectedOffsets(const EncodeWork& work) const;

  // A request's texts have been tokenized. Those of other tenants are not expected otherwise for
  // it.
  void LearnTexts(const EncodeWork& work);

 private:
  // What has a factor of its own. Attention's model is 0, and so is an encoder's dtype, which
  // is the model's own.
  struct Kind {
    uint64_t model = 0;  // its number
    KernelName kernel = KernelName::kVanilla;
    DType dtype{};
    friend auto operator<=>(const Kind&, const Kind&) = default;
  };
  // A request in a batch.
  struct Part {
    Kind kind;
    PredictedTime base;
    bool measured = false;  // the prices were
  };
  struct Tenant {
    std::map<uint64_t, double> bytes_per_token;  // by model
    uint64_t learned = 0;                        // when: counted in requests
  };

  Part PartOf(const Job& job) const;
  PredictedTime Corrected(const Kind& kind, PredictedTime base) const;
  double FactorLocked(const Part& part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimeFactors& FactorsOf(const Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double& BytesPerToken(const std::string& tenant, uint64_t model)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MemoryForecast memory_;
  const CostModel costs_;
  const EncoderPrices encoders_;

  mutable Mutex mu_;
  std::map<Kind, TimeFactors> factors_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);  // at most Tenants::kMany
  uint64_t lessons_of_texts_ ABSL_GUARDED_BY(mu_) = 0;
};

class Forecast::Lesson {
 private:
  friend class Forecast;

  double compute_us_ = 0;
  std::vector<Part> parts_;
};

}  // namespace castor
