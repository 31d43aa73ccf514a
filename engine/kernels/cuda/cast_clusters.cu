// Step 3 of CAST: the clusters, from the affinities. Integers all the way: the same affinities give
// the same clusters as the plain loops of the twin, bit for bit.
//
// TOP_K: a block a cluster; its row of affinities is read about four times, from L2 after the
// first.
//
// SINGLE_ASSIGNMENT_TOP_K takes pairs (token, cluster) in one strict order. That is the one stable
// matching of tokens and clusters which both rank by that order, so deferred acceptance finds it
// whatever the schedule: tokens choose the best cluster whose cut-off their pair reaches; a cluster
// that more than kappa tokens chose raises its cut-off to the kappa-th of them, and the others
// choose again. Cut-offs only rise and every round but the last rejects someone, so it ends. Here a
// thread-block cluster does all rounds of one clustering, with its own barrier between them.

#include "engine/kernels/cuda/cast_select.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 512;

// grid (rows), block kThreads
__global__ void __launch_bounds__(kThreads) TopKernel(const CastArgs a) {
  SelectShared& shared = *DynamicShared<SelectShared>();
  const CastRow row = RowOf(a, int64_t{blockIdx.x});
  const float* const affinities = a.affinities + row.affinity;
  const auto key = [&](int j) { return PairKey(affinities[j], j); };
  const unsigned long long bound =
      row.size < row.tokens ? SelectBound(key, row.tokens, row.size, shared) : 0;
  WriteMembers(
      a, row, [&](int j) { return key(j) >= bound; }, shared);
}

constexpr int kFree = -1;
constexpr int kCandidates = 4096;  // that fit shared memory; more are read where they lie

struct AssignShared {
  SelectShared select;
  unsigned long long candidates[kCandidates];
  int count;
};

// One clustering of one sequence.
class Assignment {
 public:
  __device__ Assignment(const CastArgs& args, int64_t group)
      : a_(args),
        row_(RowOf(args, group * args.shape.clusters)),
        choice_(args.choice + int64_t{row_.first_token} * args.clusterings +
                int64_t{row_.clustering} * row_.tokens),
        demand_(args.demand + row_.index),
        cutoff_(args.cutoff + row_.index),
        first_(static_cast<int>(ClusterRank() * blockDim.x + threadIdx.x)),
        step_(static_cast<int>(ClusterSize() * blockDim.x)) {}

  __device__ void Begin() {
    for (int i = first_; i < row_.tokens; i += step_) choice_[i] = kFree;
    for (int c = first_; c < a_.shape.clusters; c += step_) {
      demand_[c] = 0;
      cutoff_[c] = 0;
    }
  }

  // Every free token chooses; one that no cluster takes stays free.
  __device__ void Choose() {
    for (int i = first_; i < row_.tokens; i += step_) {
      if (choice_[i] != kFree) continue;
      int best = kFree;
      unsigned long long best_key = 0;
      for (int c = 0; c < a_.shape.clusters; ++c) {
        const unsigned long long key = KeyOf(i, c);
        if (key >= cutoff_[c] && key > best_key) {  // of equals the first
          best = c;
          best_key = key;
        }
      }
      choice_[i] = best;
      if (best != kFree) atomicAdd(&demand_[best], 1);
    }
  }

  // Clusters, each by one block, let go of what is beyond kappa. Returns how many tokens this block
  // rejected.
  __device__ int Reject(AssignShared& shared) {
    int rejected = 0;
    for (int c = static_cast<int>(ClusterRank()); c < a_.shape.clusters;
         c += static_cast<int>(ClusterSize())) {
      const int demand = demand_[c];
      if (demand <= row_.size) continue;
      rejected += demand - row_.size;
      const unsigned long long bound =
          demand <= kCandidates ? BoundOfFew(c, demand, shared) : BoundOfMany(c, shared);
      __syncthreads();  // all have read the demand
      if (threadIdx.x == 0) {
        demand_[c] = row_.size;
        if (bound > cutoff_[c]) cutoff_[c] = bound;
      }
    }
    return rejected;
  }

 private:
  __device__ unsigned long long KeyOf(int token, int cluster) const {
    return PairKey(a_.affinities[row_.affinity + int64_t{cluster} * row_.tokens + token], token);
  }

  __device__ unsigned long long BoundOfFew(int c, int demand, AssignShared& shared) {
    __syncthreads();
    if (threadIdx.x == 0) shared.count = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < row_.tokens; i += blockDim.x) {
      if (choice_[i] == c) shared.candidates[atomicAdd(&shared.count, 1)] = KeyOf(i, c);
    }
    const auto key = [&](int j) { return shared.candidates[j]; };
    const unsigned long long bound = SelectBound(key, demand, row_.size, shared.select);
    for (int j = static_cast<int>(threadIdx.x); j < demand; j += blockDim.x) {
      if (key(j) < bound) choice_[0xffffffffu - static_cast<uint32_t>(key(j))] = kFree;
    }
    return bound;
  }

  __device__ unsigned long long BoundOfMany(int c, AssignShared& shared) {
    const auto key = [&](int i) { return choice_[i] == c ? KeyOf(i, c) : 0ull; };
    const unsigned long long bound = SelectBound(key, row_.tokens, row_.size, shared.select);
    for (int i = static_cast<int>(threadIdx.x); i < row_.tokens; i += blockDim.x) {
      if (choice_[i] == c && KeyOf(i, c) < bound) choice_[i] = kFree;
    }
    return bound;
  }

  const CastArgs& a_;
  const CastRow row_;  // of cluster 0
  int32_t* const choice_;
  int32_t* const demand_;
  unsigned long long* const cutoff_;
  const int first_;
  const int step_;
};

// grid (sequences * clusterings, each a thread-block cluster), block kThreads
__global__ void __launch_bounds__(kThreads) AssignKernel(const CastArgs a) {
  AssignShared& shared = *DynamicShared<AssignShared>();
  const int64_t group = blockIdx.x / ClusterSize();
  Assignment assignment(a, group);
  // Three counters in turn: one is cleared while the one before it may still be read.
  int32_t* const rejections = a.rejections + 3 * group;
  const bool leads = ClusterRank() == 0 && threadIdx.x == 0;
  assignment.Begin();
  if (leads) rejections[0] = 0;
  SyncCluster();
  for (int round = 0;; ++round) {
    assignment.Choose();
    if (leads) rejections[(round + 1) % 3] = 0;
    SyncCluster();
    const int rejected = assignment.Reject(shared);
    if (threadIdx.x == 0 && rejected > 0) atomicAdd(&rejections[round % 3], rejected);
    SyncCluster();
    if (rejections[round % 3] == 0) return;
  }
}

// grid (rows), block kThreads
__global__ void __launch_bounds__(kThreads) AssignedKernel(const CastArgs a) {
  SelectShared& shared = *DynamicShared<SelectShared>();
  const CastRow row = RowOf(a, int64_t{blockIdx.x});
  const int32_t* const choice =
      a.choice + int64_t{row.first_token} * a.clusterings + int64_t{row.clustering} * row.tokens;
  WriteMembers(
      a, row, [&](int j) { return choice[j] == row.cluster; }, shared);
}

}  // namespace

cudaError_t RunCastClusters(const CastArgs& args, cudaStream_t stream) {
  const int64_t groups = int64_t{args.sequences} * args.clusterings;
  const int64_t rows = groups * args.shape.clusters;
  const LaunchShape by_row{dim3(static_cast<unsigned>(rows)), dim3(kThreads), sizeof(SelectShared)};
  if (!args.shape.single_assignment) return Launch(TopKernel, by_row, stream, args);

  const auto cluster = static_cast<unsigned>(args.batch.cluster_blocks);
  const LaunchShape by_group{dim3(static_cast<unsigned>(groups) * cluster), dim3(kThreads),
                             sizeof(AssignShared), cluster};
  const cudaError_t error = Launch(AssignKernel, by_group, stream, args);
  if (error != cudaSuccess) return error;
  return Launch(AssignedKernel, by_row, stream, args);
}

}  // namespace castor::kernels::cuda
