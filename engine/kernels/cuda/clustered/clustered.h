// Clustered and improved clustered attention on the GPU (Vyas, Katharopoulos, Fleuret 2020,
// arXiv 2007.04825): kernels over raw pointers. tests/support/twins/clustered.h defines what
// is computed; engine/attention/clustered/clustered.md explains how.
//
// Run queues a fixed number of launches on `stream`. It allocates nothing and waits for nothing, so
// it may be captured into a CUDA graph; the caller brings a workspace, whose size PlanClustered
// computes from the lengths, and device copies of the plan's offsets and of the random numbers.
// A sequence's result is a function of its own lengths and elements. How its keys are split among
// blocks and in what order sums run does not depend on its neighbours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/element.h"

namespace castor::kernels::cuda {

// Parameters that all sequences share.
struct ClusteredShape {
  Element element = Element::kFloat32;  // of query, key, value and output
  int64_t heads = 0;                    // 1..65535
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  float softmax_scale = 0;
  int32_t clusters = 0;
  int32_t iterations = 0;
  int32_t bits = 0;  // 1..64
  int32_t topk = 0;  // 0: plain clustered attention
  bool log_sum_exp = false;
  int32_t group = 1;  // neighbouring heads that have the same keys and values
};

// Offsets of the sequences and of their pieces of work: sequence s begins at
// offsets[a * (sequences + 1) + s] in the array numbered a below. The total follows the last one.
struct ClusteredPlan {
  enum Array { kQueries, kKeys, kCentroids, kQueryTiles, kAttendTiles, kPartials, kArrays };

  int64_t sequences = 0;
  std::vector<int32_t> offsets;  // [kArrays, sequences + 1]
  int64_t most_centroids = 0;    // of one sequence
  int64_t workspace_bytes = 0;   // Count::kMost (engine/kernels/count.h): cannot be counted

  int64_t total(Array array) const { return offsets[(array + 1) * (sequences + 1) - 1]; }
};

// A pure function of its arguments. Offsets as in attention::Problem, beginning at 0. A plan whose
// counts exceed int32 has no sequences; the caller refuses the problem.
ClusteredPlan PlanClustered(const ClusteredShape& shape, std::span<const int32_t> cu_seqlens_q,
                            std::span<const int32_t> cu_seqlens_k);

// Pointers to device memory; strides count elements from one token to the next.
struct ClusteredProblem {
  const void* query = nullptr;  // [query tokens, heads, head_dim]
  const void* key = nullptr;    // [key tokens, heads / group, head_dim]
  const void* value = nullptr;  // [key tokens, heads / group, value_dim]
  void* output = nullptr;       // [query tokens, heads, value_dim]
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;
  float* log_sum_exp = nullptr;      // [query tokens, heads], if the shape has it
  const int32_t* offsets = nullptr;  // the plan's
  const float* normals = nullptr;    // hash planes, [bits, head_dim]
  const float* biases = nullptr;     // [bits]
  const uint32_t* draws = nullptr;   // [clusters]: x0 of each stratum's block of random numbers
  void* workspace = nullptr;         // plan.workspace_bytes, aligned to 256
  int64_t value_head_stride = 0;     // elements from one head's value to the next of its token
};

cudaError_t Run(const ClusteredShape& shape, const ClusteredPlan& plan,
                const ClusteredProblem& problem, cudaStream_t stream);

// The stages' results in the workspace, for tests. All [heads, ...].
struct ClusteredWorkspace {
  uint64_t* codes = nullptr;      // [heads, query tokens]
  int32_t* labels = nullptr;      // [heads, query tokens]
  int32_t* order = nullptr;       // [heads, query tokens]: each sequence's queries, by cluster
  int32_t* starts = nullptr;      // [heads, centroids + sequences]: where clusters begin in `order`
  float* centroids = nullptr;     // [heads, centroids, head_dim]
  float* thresholds = nullptr;    // [heads, centroids]: no more than the least of the top k scores
  float* partial_rows = nullptr;  // [heads, partials, value_dim]
  float* partial_stats = nullptr;       // [heads, partials, 2]: greatest signed score, sum
  uint64_t* candidates = nullptr;       // [heads, partials, candidate_capacity]
  int32_t* candidate_counts = nullptr;  // [heads, partials]
  float* cluster_rows = nullptr;        // [heads, centroids, value_dim]
  float* masses = nullptr;              // [heads, centroids]
  int32_t* top_keys = nullptr;          // [heads, centroids, topk], in order of keys
  int32_t* top_counts = nullptr;        // [heads, centroids]
  float* log_sums = nullptr;            // [heads, centroids]: log-sum-exps, if the shape has them
  uint64_t* centroid_codes = nullptr;   // [heads, centroids]
  int32_t* bit_counts = nullptr;        // [heads, centroids, 64]: members that have the bit
  int32_t* member_counts = nullptr;     // [heads, centroids]
  int32_t* changes = nullptr;           // [heads, sequences, 2]: whether the pass changed a label
};

ClusteredWorkspace LayOut(const ClusteredShape& shape, const ClusteredPlan& plan, void* workspace);

}  // namespace castor::kernels::cuda
