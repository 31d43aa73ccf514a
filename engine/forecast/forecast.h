// A forecast of a request before it is admitted: time on the device and memory, in one estimate.
//
// Time is work, counted in terms, times prices that were measured when the engine started
// (cost_model.h, encoder_costs.h), times a factor learned from recent runs (TimeFactors). Memory is
// an upper bound, counted from lengths (memory.h).
//
// The automatic kernel's choice does not depend on what is learned: it uses prices alone, which
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
#include <optional>
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
#include "engine/request.h"
#include "engine/residents/model_list.h"

namespace castor {

// Corrections of the predictions of one kind of work, learned from recent runs: a factor for each
// size class (TimeClassOf). Its logarithm is the exponentially weighted moving average of
// log(measured / predicted) (S. W. Roberts, "Control Chart Tests Based on Geometric Moving
// Averages", Technometrics 1959). A run also counts for neighbouring classes, less with each step,
// so that an error common to all sizes is learned soon.
//
// Not thread-safe.
class TimeFactors {
 public:
  // The trust in predictions without a factor: how wrong they may be at most, and how many runs
  // they are worth.
  struct Prior {
    double max_factor;
    double runs;
  };

  explicit TimeFactors(Prior prior) : prior_(prior) {}

  // The factor for predictions of about `us`; 1 before the first run.
  double Of(double us) const { return std::exp(classes_[TimeClassOf(us)].log_factor); }

  // A prediction of `us`, without a factor, took `ratio` times as long. `weight`, from 0 to 1, is
  // the share of the run that it explains.
  void Learn(double us, double ratio, double weight) {
    if (!(ratio > 0) || !std::isfinite(ratio) || !(weight > 0)) return;
    const double most = std::log(prior_.max_factor);
    const double log_ratio = std::clamp(std::log(ratio), -most, most);
    weight = std::min(weight, 1.0);
    const size_t own = TimeClassOf(us);
    double share = weight;
    for (size_t step = 0; step < classes_.size(); ++step, share *= kNeighborShare) {
      if (own + step < classes_.size()) classes_[own + step].Learn(log_ratio, share, prior_.runs);
      if (step > 0 && own >= step) classes_[own - step].Learn(log_ratio, share, prior_.runs);
    }
  }

 private:
  // The weight of one more run is that of a mean at first, and never less than this. So a change of
  // the machine's speed is followed within some twenty runs, and a single slow run hardly matters.
  static constexpr double kMinStep = 0.05;

  // The weight of a run for the next class relative to its own. Replays of measured runs, after
  // good calibrations and a bad one, gave similar results from 0.5 to 0.85.
  static constexpr double kNeighborShare = 0.6;

  struct Class {
    double log_factor = 0;
    double seen = 0;  // sum of weights

    void Learn(double log_ratio, double share, double trusted_runs) {
      log_factor +=
          share * std::max(kMinStep, 1 / (seen + trusted_runs + 1)) * (log_ratio - log_factor);
      seen += share;
    }
  };

  Prior prior_;
  std::array<Class, kTimeClasses> classes_{};
};

struct Estimate {
  PredictedTime time;  // of one run, with the probe of its error
  MemoryNeed memory;   // enough for any kernel that may run
};

class Forecast {
 public:
  // `variants` are the device's and must outlive the object. `copies`: Device::copies_tensors.
  // Kernels and models without measured prices get assumed ones, and factors that may grow large.
  Forecast(std::span<const attention::Variant> variants, bool copies, CostModel costs,
           EncoderPrices encoders)
      : memory_(variants, copies), costs_(std::move(costs)), encoders_(std::move(encoders)) {}

  // The estimate of an attention request. For the automatic kernel, the time of its first choice:
  // runs that follow if an error is too large depend on the input alone and are not included.
  Estimate Of(const Plan& plan, const attention::Resolved& resolved) const;

  // The estimate of an encode request whose sequences have these offsets. Requires its input.
  Estimate Of(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const;

  // The estimate of a job's next run, with the kernel that it has now.
  Estimate Of(const Job& job) const;

  // The time without learned factors.
  PredictedTime Base(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                     std::span<const int32_t> cu_seqlens_k,
                     std::span<const attention::Place> places = {}) const;
  PredictedTime Base(const EncodeWork& work, std::span<const int32_t> cu_seqlens) const;

  // The data to learn from a batch that has run. Keeps no reference to its jobs.
  class RunSample;

  // The sample of a batch that has run for `compute_us`, without probes and pauses. To be called
  // before the jobs' kernels change.
  RunSample SampleOf(const JobList& jobs, double compute_us) const;

  // Engine thread. Times of zero or less are ignored.
  void Learn(const RunSample& sample);

  // The offsets of an encode request's sequences; for texts, the expected offsets after tokenizing,
  // by the bytes of each text and its prompt.
  std::vector<int32_t> ExpectedOffsets(const EncodeWork& work) const;

  // The prices of a model that was loaded later, and the end of it.
  void SetPrices(uint64_t model, const EncoderCosts& prices);
  void Forget(uint64_t model);

  // Learns from a request's tokenized texts, for its tenant alone.
  void LearnTexts(const EncodeWork& work);

 private:
  // Work with a factor of its own. Attention has no model. An encoder's dtype is not set, since its
  // model has only one.
  struct FactorKey {
    uint64_t model = 0;  // LoadedModel::number; 0: attention
    KernelName kernel = KernelName::kVanilla;
    DType dtype{};
    friend auto operator<=>(const FactorKey&, const FactorKey&) = default;
  };
  // A request in a batch.
  struct BatchMember {
    FactorKey key;
    PredictedTime base;
    bool measured = false;  // whether its prices were measured
  };
  struct Tenant {
    std::map<uint64_t, double> bytes_per_token;  // by model
    uint64_t learned = 0;                        // the number of the last sample
  };

  BatchMember MemberOf(const Job& job) const;
  PredictedTime Corrected(const FactorKey& key, PredictedTime base) const;
  double FactorLocked(const BatchMember& member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimeFactors& FactorsOf(const BatchMember& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<EncoderCosts> PricesOf(uint64_t model) const;
  double& BytesPerToken(const std::string& tenant, uint64_t model)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MemoryForecast memory_;
  const CostModel costs_;

  mutable Mutex mu_;
  EncoderPrices encoders_ ABSL_GUARDED_BY(mu_);
  std::map<FactorKey, TimeFactors> factors_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);  // at most Tenants::kMany
  uint64_t text_samples_ ABSL_GUARDED_BY(mu_) = 0;
};

class Forecast::RunSample {
 private:
  friend class Forecast;

  double compute_us_ = 0;
  std::vector<BatchMember> members_;
};

}  // namespace castor
