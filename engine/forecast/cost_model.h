// The cost of a run of an attention kernel on one device: seven terms that count its work, each
// times a price that was fitted to measured runs.
//
// The unit of a term is a microsecond on the reference processor: one core of an AMD EPYC with
// AVX-512, in float32. There the sum of the terms is within 25 % of the measured time for nine
// random problems in ten (tests/bench/logs/2026-11-27-forecast.md). The counts follow how the CPU's
// kernels divide their work, because a plain count of operations is wrong by factors.
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
  kTasks,     // the units that a worker takes: some rows of a head
  kBytes,     // rows that are loaded and converted, gathered or stored
  kScores,    // multiply-adds: queries with keys or centroids, weights with values
  kWeights,   // exponentials of scores
  kClusters,  // hashes and Lloyd's algorithm on them, sums of clusters, CAST's gates
  kSelect,    // the search for the top keys, and for the members of CAST's clusters
};
inline constexpr size_t kCostTerms = 7;
using CostTerms = std::array<double, kCostTerms>;

// The terms of a problem with these offsets ([sequences + 1] each) on `workers` threads. A stage of
// few tasks, or of too little work to wake other threads, keeps fewer of them busy. `places` are
// Problem::places.
CostTerms CostTermsOf(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, int workers = 1,
                      std::span<const attention::Place> places = {});

// Rounds up to whole vectors of the CPU's kernels.
double InLanes(double n);

// The number of queries that share a loaded key: at each end of a mask, half of them compute scores
// that are masked.
inline constexpr double kPanel = 48;

// The mean number of keys that a query computes with: those that it sees, over `queries` queries
// from `place` on (null if Problem::places is empty), and `extra` more at each end of a mask.
double SeenKeys(const attention::Spec& spec, const attention::Place* place, double queries,
                double keys, double extra);

// One measured run.
using CostSample = RelativeSample<kCostTerms>;

// Fits prices to a few runs of a kernel. The prices of terms that the runs do not tell apart have
// the proportions of the reference processor. Outliers have less weight. Requires samples.
CostTerms FitCosts(std::span<const CostSample> samples);

class CostModel {
 public:
  using Key = std::pair<KernelName, DType>;

  // `prices`: for each term, the microseconds here for one on the reference processor.
  void Set(KernelName kernel, DType dtype, const CostTerms& prices) {
    prices_[{kernel, dtype}] = prices;
  }

  // The number of threads that share a run.
  void SetWorkers(int workers) { workers_ = workers; }
  int workers() const { return workers_; }

  bool Knows(KernelName kernel, DType dtype) const { return prices_.contains({kernel, dtype}); }

  // How long the kernel of `spec` computes. A kernel that was not measured has twice the
  // reference's prices, as on a processor with vectors of 256 bits.
  PredictedTime Of(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                   std::span<const int32_t> cu_seqlens_k,
                   std::span<const attention::Place> places = {}) const;

  // The same in microseconds, or nullopt if the kernel was not measured.
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
// The file is JSON: a key, and prices by kernel and dtype. Servers with equal `key`s may share
// prices. Any other file is rejected with the reason, and not changed. Any thread may call these
// functions.

// NOT_FOUND if there is no such file; other errors say what is wrong with it.
absl::StatusOr<CostModel> ReadCosts(const std::string& file, std::string_view key);

// Creates the file atomically. ALREADY_EXISTS if there is one by now, which is not changed: servers
// that start at the same time all use the first one's model.
absl::Status WriteCosts(const std::string& file, const CostModel& model, std::string_view key);

}  // namespace castor
