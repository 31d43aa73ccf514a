// The work of a run of an attention kernel, counted: a few terms that the run's time is a sum of,
// each with a price (cost_model.h).
//
// The counts follow how kernels cut their work, as on the CPU: rows are computed in groups of
// lanes, blocks of keys are loaded anew for each tile of rows, and a stage keeps no more workers
// busy than it has tasks. Pure functions of lengths, parameters and the team.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/attention/problem.h"

namespace castor::attention {

// N_q and N_k are a sequence's queries and keys, d and d_v the dimensions of a head, R the rows
// that attend to all keys: N_q for vanilla, the min(C, N_q) centroids for the clustered kernels.
// CAST's rows attend to other tokens of their cluster, and twice to the surrogates. All but the
// first three count millions of operations over all sequences and heads. R is rounded up to whole
// vectors of 16 lanes, and what is loaded at once is rounded up likewise. Clustering in the space
// of queries has no term of its own: its products are scores, of queries with centroids.
enum class CostTerm {
  kLaunch,    // 1
  kWakes,     // stages that wake the other threads
  kTasks,     // what a worker takes at a time: some rows of a head
  kMemory,    // bytes of the inputs and outputs
  kRows,      // rows that are moved
  kTails,     // elements of them beyond whole vectors, which are moved one by one
  kTokens,    // elements of rows that are loaded and converted
  kStores,    // elements of rows that are converted and stored
  kGather,    // elements of rows that are gathered: top keys, members of CAST's clusters
  kScores,    // R N_k (d + d_v): queries with keys, weights with values
  kBlocks,    // R (d + d_v) for each block of 128 keys: outputs that are read and written again
  kWeights,   // R N_k: exponentials, and the search for the top keys
  kPlanes,    // bits d: hash planes, drawn once
  kHash,      // N_q bits d
  kLloyd,     // N_q C (iterations + 1): Hamming distances of 64 bits
  kCodes,     // N_q (iterations + 1): codes that may move to another centroid
  kClusters,  // C: clusters
  kExact,     // N_q k (d + d_v): the exact part of improved clustered
  kRefined,   // N_q k: its exponentials
  kSelect,    // N N_c: CAST's search for the clusters' members, TOP_K; sorts for the top keys
  kAssign,    // N N_c: the same, SINGLE_ASSIGNMENT_TOP_K
  kLaplace,   // those of kWeights that are CAST's laplace function
};
inline constexpr size_t kCostTerms = 22;
inline constexpr size_t kFixedCostTerms = 3;  // those that do not count operations
using CostTerms = std::array<double, kCostTerms>;

// The threads that share a run.
struct Team {
  int workers = 1;
  double gain = 1;  // what each worker beyond the first adds, as a share of the first

  friend bool operator==(const Team&, const Team&) = default;
};

// The terms of a problem with these offsets ([sequences + 1] each). With a team, all terms but
// kLaunch and kWakes are those of one worker at its own speed: a stage of few tasks, or of too
// little work to wake anybody for, is divided by less than the team.
CostTerms CostTermsOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, const Team& team = {});

}  // namespace castor::attention
