// Predicts how long a request will keep the device, before it is admitted: the work counted in
// terms, at prices that were measured when the engine or the model started, corrected by what was
// learned from recent runs. Where attention's prices were measured, each of a kernel's terms has a
// factor (learned_prices.h); elsewhere there is one for each size of problem
// (time_corrections.h).
//
// The automatic kernel's choice does not depend on any of this: it uses the prices alone, which
// never change while the engine runs.
//
// Any thread. One short lock, not held while terms are counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/attention/cost/cost_model.h"
#include "engine/attention/resolve.h"
#include "engine/base/mutex.h"
#include "engine/encoder/text/prepare.h"
#include "engine/ledger/job.h"
#include "engine/jobs/learned_by_tenant.h"
#include "engine/jobs/learned_prices.h"
#include "engine/jobs/models.h"
#include "engine/jobs/plan.h"
#include "engine/jobs/predicted_time.h"
#include "engine/jobs/time_corrections.h"
#include "engine/kernel_table.h"
#include "engine/request.h"

namespace castor {

class Predictor {
 public:
  // `costs` may lack kernels, or be empty: then the operations are counted at an assumed speed of
  // `workers`, a device's DeviceInfo::threads, and the factors may grow much larger.
  Predictor(attention::CostModel costs, int workers);

  // Of an attention request. For the automatic kernel, its first choice; in both cases with the
  // probe of the error, if the plan has one. Runs that may follow, where an error is too large, are
  // not included: whether there will be any depends on the input alone.
  PredictedTime Predict(const Plan& plan, const attention::Resolved& resolved) const;

  // Of sequences with these offsets, from an encoder whose head goes through so many elements
  // beside (encoder::ReadOutElements).
  PredictedTime Predict(const LoadedModel& model, const Kernel& kernel,
                        std::span<const int32_t> cu_seqlens, double read_out = 0) const;

  // Of a job with the kernel that it has now.
  PredictedTime Predict(const Job& job) const;

  // The offsets that a tenant's texts are expected to have once they are tokenized, by their bytes
  // and those of the prompt before each.
  std::vector<int32_t> ExpectedOffsets(const std::string& tenant, const LoadedModel& model,
                                       const TextInput& input, size_t prompt_bytes = 0) const;

  // What is to be learned from a batch that has run. Holds nothing of its jobs.
  class Lesson;

  // A batch has run, without probes, in so much time, pauses excluded. Before the jobs' kernels
  // change.
  Lesson LessonOf(const JobList& jobs, double compute_us) const;

  // Engine thread. Times of zero or less are ignored.
  void Learn(const Lesson& lesson);

  // A tenant's texts have been tokenized to these sequences.
  void LearnTexts(const std::string& tenant, const LoadedModel& model, const TextInput& input,
                  const encoder::Prepared& prepared, size_t prompt_bytes = 0);

  // Without what was learned.
  PredictedTime Base(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                     std::span<const int32_t> cu_seqlens_k) const;
  PredictedTime Base(const LoadedModel& model, const Kernel& kernel,
                     std::span<const int32_t> cu_seqlens, double read_out = 0) const;

 private:
  // Attention's generation is 0, and so is an encoder's dtype, which is the model's own.
  struct Key {
    uint64_t generation = 0;
    KernelName kernel = KernelName::kVanilla;
    DType dtype{};
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Part {  // of a batch
    Key key;
    PredictedTime base;
    bool measured = false;  // the base is
  };
  struct Prices {  // what a batch's terms cost at measured prices
    attention::CostModel::Key key;
    attention::CostTerms us{};
  };

  Part PartOf(const Job& job) const;
  PredictedTime Corrected(const Key& key, PredictedTime base) const;
  PredictedTime Attention(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                          std::span<const int32_t> cu_seqlens_k) const;
  std::optional<Prices> PricesOf(const JobList& jobs) const;
  void LearnParts(std::span<const Part> parts, double compute_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimeCorrections& CorrectionsFor(const Key& key, bool measured) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double FactorLocked(const Key& key, const PredictedTime& base) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const attention::CostModel costs_;  // with the team
  const int workers_;

  mutable Mutex mu_;
  std::map<Key, TimeCorrections> corrections_ ABSL_GUARDED_BY(mu_);  // at most kMostKeys
  std::map<attention::CostModel::Key, LearnedPrices> learned_ ABSL_GUARDED_BY(mu_);  // as costs_
  LearnedByTenant<uint64_t, double> bytes_per_token_ ABSL_GUARDED_BY(mu_){256};  // by generation
};

class Predictor::Lesson {
 private:
  friend class Predictor;

  double compute_us_ = 0;
  std::optional<Prices> prices_;  // where they were measured, else
  std::vector<Part> parts_;
};

}  // namespace castor
