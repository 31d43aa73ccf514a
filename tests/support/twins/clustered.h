// Clustered attention (Vyas, Katharopoulos, Fleuret 2020, arXiv 2007.04825) from its definition:
// hash the queries, cluster the codes, and let each cluster's mean query attend for its members.
// Improved clustered attention (section 3.3) then refines each row on its cluster's top keys.
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

// Labels of a whole problem under kernel Clustered or ImprovedClustered: [query_tokens, heads].
std::vector<int32_t> ClusterLabels(const Spec& spec, const Problem& problem);

// Output rows [query_tokens, heads, value_dim]; spec.kernel holds Clustered or ImprovedClustered.
std::vector<double> ClusteredReference(const Spec& spec, const Problem& problem);

}  // namespace castor::attention
