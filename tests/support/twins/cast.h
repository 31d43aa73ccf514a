// CAST (Engelenhoven, Strisciuglio, Talavera 2024, arXiv 2402.04239) from its definition: tokens
// are clustered by their affinity to learned surrogate tokens, attend inside their clusters, and
// see the other clusters through summaries.
//
// The clustering is a separate function, because implementations must match it bit for bit. See
// tensors.h for what a twin is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// Members of each cluster in ascending order, from affinities [tokens, clusters] of one sequence.
// `cluster_size` is at most the number of tokens; with single assignment, clusters * cluster_size
// is at least that.
std::vector<std::vector<int64_t>> CastMembers(std::span<const double> affinities, int64_t clusters,
                                              int64_t cluster_size, Cast::Clustering clustering);

// Output rows [tokens, heads, value_dim]; spec.kernel holds Cast, query and key lengths agree.
std::vector<double> CastReference(const Spec& spec, const Problem& problem);

}  // namespace castor::attention
