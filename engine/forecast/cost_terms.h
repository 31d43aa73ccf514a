// The work of a run of an attention kernel, counted: seven terms, in microseconds that they would
// take on a reference processor. A device's prices (cost_model.h) are factors to these.
//
// The reference is one core of an AMD EPYC with AVX-512, in float32. There the sum of the terms is
// within 25 % of what nine random problems in ten take (tests/bench/prediction_bench.cc). Counts
// follow how the CPU's kernels cut their work: a plain count of operations is wrong by factors.
//
// Pure functions of lengths, parameters and the number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/attention/problem.h"

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
// stages of few tasks, or of too little work to wake anybody for, keep fewer of them busy.
CostTerms CostTermsOf(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, int workers = 1);

}  // namespace castor
