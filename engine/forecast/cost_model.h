// What a run of an attention kernel costs on one device: seven terms that count its work, each
// times a price that was fitted to measured runs.
//
// Terms are in microseconds that they would take on a reference processor: one core of an AMD EPYC
// with AVX-512, in float32. There their sum is within 25 % of what nine random problems in ten take
// (tests/bench/logs/2026-11-27-forecast.md). Counts follow how the CPU's kernels cut their work: a
// plain count of operations is wrong by factors.
//
// The functions are pure; a CostModel is constant once it has been filled, and then any thread may
// read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/forecast/relative_fit.h"
#include "engine/ledger/device_memory.h"

namespace castor {

enum class CostTerm {
  kLaunch,    // the call, waking the other threads, drawing hash planes: once for a whole batch
  kTasks,     // what a worker takes at a time: some rows of a head
  kBytes,     // rows that are loaded and converted, gathered or stored
  kScores,    // multiply-adds: queries with keys or centroids, weights with values
  kWeights,   // exponentials of scores
  kClusters,  // hashes and Lloyd's algorithm on them, sums of clusters, CAST's gates
  kSelect,    // the search for the top keys, and for the members of CAST's clusters
};
inline constexpr size_t kCostTerms = 7;
using CostTerms = std::array<double, kCostTerms>;

// The terms of a problem with these offsets ([sequences + 1] each), shared by `workers` threads:
// stages of few tasks, or of too little work to wake anybody for, keep fewer of them busy. `places`
// are Problem::places.
CostTerms CostTermsOf(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, int workers = 1,
                      std::span<const attention::Place> places = {});

// Up to whole vectors of the CPU's kernels.
double InLanes(double n);

// How many queries share a loaded key: half of them compute in vain at each end of a mask.
inline constexpr double kPanel = 48;

// The keys that a query sees, on average over `queries` from a place on (null: Problem::places is
// empty), and those that are computed beside them: `extra` at each end of a mask.
double SeenKeys(const attention::Spec& spec, const attention::Place* place, double queries,
                double keys, double extra);

// One measured run.
using CostSample = RelativeSample<kCostTerms>;

// The prices that a few runs of a kernel suggest. Terms that they do not tell apart stand to each
// other as on the reference processor. Runs that others held up have less weight. Requires samples.
CostTerms FitCosts(std::span<const CostSample> samples);

class CostModel {
 public:
  using Key = std::pair<KernelName, DType>;

  // Microseconds for one on the reference processor, of each term.
  void Set(KernelName kernel, DType dtype, const CostTerms& prices) {
    prices_[{kernel, dtype}] = prices;
  }

  // The threads that share a run.
  void SetWorkers(int workers) { workers_ = workers; }
  int workers() const { return workers_; }

  bool Knows(KernelName kernel, DType dtype) const { return prices_.contains({kernel, dtype}); }

  // How long the kernel of `spec` computes. A kernel that was not measured has the reference's
  // prices, doubled: a processor with vectors of 256 bits.
  PredictedTime Of(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                   std::span<const int32_t> cu_seqlens_k,
                   std::span<const attention::Place> places = {}) const;

  // The same in microseconds; nullopt if the kernel was not measured.
  std::optional<double> Predict(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k) const;

  bool empty() const { return prices_.empty(); }
  const std::map<Key, CostTerms>& prices() const { return prices_; }

 private:
  std::map<Key, CostTerms> prices_;
  int workers_ = 1;
};

// A cost model in a file, which servers share so that their automatic kernels choose alike.
//
// JSON: the key that it was measured under, and prices by kernel and dtype. Anything else is
// rejected with the reason and left alone. Any thread may call these.
//
// `key`: what must agree for the model to hold, the number of threads among it.

// NOT_FOUND if there is no such file; any other error says what is wrong with it.
absl::StatusOr<CostModel> ReadCosts(const std::string& file, std::string_view key);

// Creates the file atomically. ALREADY_EXISTS if there is one by now; it stays as it is, so servers
// that start at the same time all use the first one's model.
absl::Status WriteCosts(const std::string& file, const CostModel& model, std::string_view key);

}  // namespace castor
