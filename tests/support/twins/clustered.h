// Clustered attention (Vyas, Katharopoulos, Fleuret 2020, arXiv 2007.04825) from its definition:
// hash the queries, cluster the codes, and let each cluster's mean query attend for its members.
// Improved clustered attention (section 3.3) then refines each row on its cluster's top keys.
//
// Some options are not the paper's (engine/attention/clustered/clustered.md): clusters of the
// queries themselves, and a mass of the rest, or of groups of it, that each query has of its own.
//
// The stages are separate functions, because implementations must match the integer ones bit for
// bit. See tensors.h for what a twin is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// Random hyperplanes, the same for all heads and sequences.
struct HashPlanes {
  int bits = 0;
  int64_t dim = 0;
  std::vector<float> normals;  // [bits, dim]
  std::vector<float> biases;   // [bits], zero without hash_bias
};

HashPlanes MakeHashPlanes(const Clustered& parameters, int64_t dim);

// Bit t is set where query . normal_t > bias_t.
uint64_t HashCode(const HashPlanes& planes, const double* query);

// One sequence's clusters in one head.
struct CodeClusters {
  std::vector<int32_t> labels;      // per query: its cluster
  std::vector<uint64_t> centroids;  // codes, min(clusters, queries) of them
  int updates = 0;                  // Lloyd iterations done
};

// Lloyd's algorithm in Hamming space on one sequence's codes.
CodeClusters ClusterCodes(std::span<const uint64_t> codes, const Clustered& parameters);

// One sequence's clusters in one head, of the queries themselves.
struct QueryClusters {
  std::vector<int32_t> labels;  // per query: its cluster
  int64_t count = 0;            // min(clusters, queries)
  int updates = 0;              // Lloyd iterations done
  // The least difference, of all assignments, between a query's distances to its nearest centroid
  // and to another one that is not the same, relative to the size of their terms.
  double margin = 0;
};

// Lloyd's algorithm with the distance (q - c)' M (q - c), M being the covariance of the keys:
// queries [count, dim], keys [key_count, dim].
QueryClusters ClusterQueries(std::span<const double> queries, std::span<const double> keys,
                             int64_t dim, const Clustered& parameters);

// The least margin in a problem of clusters under QUERY_SPACE and of groups of keys; infinite
// without either.
double QuerySpaceMargin(const Spec& spec, const Problem& problem);

// Labels of a whole problem under kernel Clustered or ImprovedClustered: [query_tokens, heads].
std::vector<int32_t> ClusterLabels(const Spec& spec, const Problem& problem);

// Output rows [query_tokens, heads, value_dim], and if asked for, their log-sum-exp [query_tokens,
// heads]; spec.kernel holds Clustered or ImprovedClustered.
std::vector<double> ClusteredReference(const Spec& spec, const Problem& problem,
                                       std::vector<double>* log_sum_exp = nullptr);

}  // namespace castor::attention
