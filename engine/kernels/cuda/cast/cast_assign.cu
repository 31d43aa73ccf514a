// Step 3 of CAST with single assignment: pairs (token, cluster) are taken in one strict order.
//
// The result is the only stable matching of tokens and clusters that both rank by that order, so
// deferred acceptance finds it with any schedule: tokens choose the best cluster whose cut-off
// their pair reaches; a cluster that more than kappa tokens chose raises its cut-off to the
// kappa-th of them, and the others choose again. Cut-offs only rise, and every round but the last
// rejects a token, so it ends: after 5 to 11 rounds for random affinities, and after N_c if all
// prefer the same.
//
// The first round, in which every token chooses, has the whole GPU. Few tokens take part in the
// others, which work on lists: one block does all rounds of one clustering, with its own barrier
// between their steps, so neither the host nor the grid waits.

#include "engine/kernels/cuda/cast/cast_select.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kChoiceThreads = 128;
constexpr int kFree = -1;
constexpr int kCandidates = 4096;  // that fit shared memory; more are read where they lie
constexpr int kLaneKeys = 16;      // keys a lane holds where a warp selects: 512 in all

struct RejectShared {
  SelectShared select;
  unsigned long long candidates[kCandidates];
  int count;
};

// One clustering of one sequence, with the state of its matching so far.
struct Assignment {
  const CastArgs& a;
  const CastRow first_row;           // of cluster 0
  int32_t* const choice;             // [tokens]: the cluster that holds it, or kFree
  int32_t* const free_tokens;        // list: the tokens that choose in this round
  int32_t* const places;             // [free token of the list]: its place among the arrivals
  int32_t* const arrivals;           // lists by cluster: the tokens that arrived
  int32_t* const arriving;           // [clusters]: how many
  int32_t* const starts;             // [clusters]: where in `arrivals`
  int32_t* const counts;             // [clusters]: how many are held, in `members`
  unsigned long long* const cutoff;  // [clusters]
  int32_t* const free_count;         // [3], by round
  int32_t* const arrived;            // [3], by round

  __device__ Assignment(const CastArgs& args, int sequence, int clustering)
      : Assignment(args, RowOf(args, sequence, clustering, 0)) {}

  __device__ unsigned long long KeyOf(int token, int cluster) const {
    return PairKey(a.affinities[first_row.affinity + int64_t{cluster} * first_row.tokens + token],
                   token);
  }

  // The best cluster that would hold this token now; of equals the first; kFree if there is none.
  __device__ int Best(int token, bool first_round) const {
    int best = kFree;
    unsigned long long best_key = 0;
    for (int c = 0; c < a.shape.clusters; ++c) {
      const unsigned long long key = KeyOf(token, c);
      if (key > best_key && (first_round || key >= cutoff[c])) {
        best = c;
        best_key = key;
      }
    }
    return best;
  }

  __device__ int32_t* MembersOf(int cluster) const {
    return a.members + first_row.slot + int64_t{cluster} * first_row.size;
  }

  __device__ void Release(int token, int round) const {
    choice[token] = kFree;
    free_tokens[atomicAdd(&free_count[round % 3], 1)] = token;
  }

 private:
  __device__ Assignment(const CastArgs& args, const CastRow& row)
      : a(args),
        first_row(row),
        choice(args.choice + TokenAt(args, row)),
        free_tokens(args.free_tokens + TokenAt(args, row)),
        places(args.places + TokenAt(args, row)),
        arrivals(args.arrivals + TokenAt(args, row)),
        arriving(args.arriving + row.index),
        starts(args.starts + row.index),
        counts(args.counts + row.index),
        cutoff(args.cutoff + row.index),
        free_count(args.counters + 6 * (int64_t{row.sequence} * args.clusterings + row.clustering)),
        arrived(free_count + 3) {}

  __device__ static int64_t TokenAt(const CastArgs& args, const CastRow& row) {
    return int64_t{row.first_token} * args.clusterings + int64_t{row.clustering} * row.tokens;
  }
};

// grid (tiles of 128 tokens, clusterings), block kChoiceThreads
__global__ void __launch_bounds__(kChoiceThreads) FirstChoiceKernel(const CastArgs a) {
  const int s = FindSequence(a.tiles128, a.sequences, 1, blockIdx.x);
  const Assignment all(a, s, static_cast<int>(blockIdx.y));
  const int tile = static_cast<int>(blockIdx.x) - a.tiles128[s];
  if (tile == 0 && threadIdx.x < 3) all.free_count[threadIdx.x] = all.arrived[threadIdx.x] = 0;
  const int token = tile * kChoiceThreads + static_cast<int>(threadIdx.x);
  if (token < all.first_row.tokens) all.choice[token] = all.Best(token, true);
}

// grid (rows), block kThreads
__global__ void __launch_bounds__(kThreads) FirstRejectionKernel(const CastArgs a) {
  RejectShared& shared = *DynamicShared<RejectShared>();
  const CastRow row = RowOf(a, int64_t{blockIdx.x});
  const Assignment all(a, row.sequence, row.clustering);
  const int c = row.cluster;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) shared.count = 0;
  __syncthreads();
  for (int i = thread; i < row.tokens; i += kThreads) {
    if (all.choice[i] != c) continue;
    const int place = atomicAdd(&shared.count, 1);
    if (place < kCandidates) shared.candidates[place] = all.KeyOf(i, c);
  }
  __syncthreads();
  const int demand = shared.count;
  unsigned long long bound = 0;
  if (demand > row.size && demand <= kCandidates) {
    const auto key = [&](int j) { return shared.candidates[j]; };
    bound = SelectBound(key, demand, row.size, shared.select);
  } else if (demand > row.size) {
    const auto key = [&](int i) { return all.choice[i] == c ? all.KeyOf(i, c) : 0ull; };
    bound = SelectBound(key, row.tokens, row.size, shared.select);
  }
  const auto stays = [&](int i) {
    return all.choice[i] == c && (bound == 0 || all.KeyOf(i, c) >= bound);
  };
  WriteMembers(a, row, stays, shared.select);
  // A thread looks at the tokens that it looked at above.
  for (int i = thread; bound != 0 && i < row.tokens; i += kThreads) {
    if (all.choice[i] == c && !stays(i)) all.Release(i, 0);
  }
  if (thread == 0) {
    all.cutoff[c] = bound;
    all.arriving[c] = 0;
  }
}

// A cluster's candidates: those it holds, then the arrivals.
struct Candidates {
  const Assignment& all;
  const int cluster;
  const int held;
  const int total;
  int32_t* const members;
  const int32_t* const arrivals;

  __device__ Candidates(const Assignment& assignment, int c)
      : all(assignment),
        cluster(c),
        held(assignment.counts[c]),
        total(held + assignment.arriving[c]),
        members(assignment.MembersOf(c)),
        arrivals(assignment.arrivals + assignment.starts[c]) {}

  __device__ unsigned long long Key(int j) const {
    return all.KeyOf(j < held ? members[j] : arrivals[j - held], cluster);
  }

  // Called by one thread, after all others have read what it changes.
  __device__ void Finish(unsigned long long bound) const {
    all.counts[cluster] = min(total, all.first_row.size);
    all.arriving[cluster] = 0;
    if (bound > all.cutoff[cluster]) all.cutoff[cluster] = bound;
  }
};

__device__ __forceinline__ int TokenOf(unsigned long long key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}

// A warp keeps the best kappa of at most 32 * kLaneKeys candidates, in registers.
__device__ void KeepBestByWarp(const Candidates& from, int round) {
  const int lane = threadIdx.x % 32;
  const int size = from.all.first_row.size;
  unsigned long long keys[kLaneKeys];
#pragma unroll
  for (int q = 0; q < kLaneKeys; ++q) {
    const int j = 32 * q + lane;
    keys[q] = j < from.total ? from.Key(j) : 0;
  }
  unsigned long long bound = 0;  // that exactly kappa reach; bit by bit
  for (int bit = 63; bit >= 0 && from.total > size; --bit) {
    const unsigned long long higher = bound | 1ull << bit;
    int reach = 0;
#pragma unroll
    for (int q = 0; q < kLaneKeys; ++q) reach += keys[q] >= higher ? 1 : 0;
    reach = __reduce_add_sync(0xffffffffu, reach);
    if (reach >= size) bound = higher;
    if (reach == size) break;
  }
  __syncwarp();  // all lanes have read the members
  int written = 0;
#pragma unroll
  for (int q = 0; q < kLaneKeys; ++q) {
    const bool stays = keys[q] != 0 && keys[q] >= bound;
    const uint32_t who = __ballot_sync(0xffffffffu, stays);
    if (stays) {
      from.members[written + __popc(who & ((1u << lane) - 1))] = TokenOf(keys[q]);
    } else if (keys[q] != 0) {
      from.all.Release(TokenOf(keys[q]), round);
    }
    written += __popc(who);
  }
  if (lane == 0) from.Finish(bound);
}

// The same by a block, for any number of candidates.
__device__ void KeepBestByBlock(const Candidates& from, int round, SelectShared& shared) {
  const int size = from.all.first_row.size;
  const auto key = [&](int j) { return from.Key(j); };
  const unsigned long long bound =
      from.total > size ? SelectBound(key, from.total, size, shared) : 0;
  // The tokens that stay move up, never past those that are yet to be read.
  int written = 0;
  int parity = 1;
  for (int base = 0; base < from.total; base += kThreads, parity ^= 1) {
    const int j = base + static_cast<int>(threadIdx.x);
    const unsigned long long mine = j < from.total ? key(j) : 0;
    const bool stays = mine != 0 && mine >= bound;
    int staying;
    const int before = SumBefore(stays ? 1 : 0, shared.warp_sums[parity], &staying);
    if (stays) {
      from.members[written + before] = TokenOf(mine);
    } else if (mine != 0) {
      from.all.Release(TokenOf(mine), round);
    }
    written += staying;
  }
  __syncthreads();
  if (threadIdx.x == 0) from.Finish(bound);
}

// grid (sequences * clusterings), block kThreads
__global__ void __launch_bounds__(kThreads) LaterRoundsKernel(const CastArgs a) {
  SelectShared& shared = *DynamicShared<SelectShared>();
  const auto group = static_cast<int>(blockIdx.x);
  const Assignment all(a, group / a.clusterings, group % a.clusterings);
  const int clusters = a.shape.clusters;
  const auto first = static_cast<int>(threadIdx.x);
  // Round r reads the free tokens counted in slot r of three and fills those of slot r + 1, while
  // some thread may still read slot r; so the slot to clear is the one after.
  for (int round = 0;; ++round) {
    const int free = all.free_count[round % 3];
    if (free == 0) return;
    for (int f = first; f < free; f += kThreads) {
      const int token = all.free_tokens[f];
      const int best = all.Best(token, false);
      all.choice[token] = best;
      if (best != kFree) all.places[f] = atomicAdd(&all.arriving[best], 1);
    }
    if (first == 0) all.free_count[(round + 2) % 3] = all.arrived[(round + 1) % 3] = 0;
    __syncthreads();
    for (int c = first; c < clusters; c += kThreads) {
      const int count = all.arriving[c];
      if (count > 0) all.starts[c] = atomicAdd(&all.arrived[round % 3], count);
    }
    __syncthreads();
    for (int f = first; f < free; f += kThreads) {
      const int token = all.free_tokens[f];
      const int c = all.choice[token];
      if (c != kFree) all.arrivals[all.starts[c] + all.places[f]] = token;
    }
    __syncthreads();
    // Clusters with many candidates are cut down by all threads, the others by a warp each.
    for (int c = 0; c < clusters; ++c) {
      if (all.arriving[c] == 0 || all.counts[c] + all.arriving[c] <= 32 * kLaneKeys) continue;
      KeepBestByBlock(Candidates(all, c), round + 1, shared);
      __syncthreads();
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (int c = warp; c < clusters; c += kThreads / 32) {
      if (all.arriving[c] > 0) KeepBestByWarp(Candidates(all, c), round + 1);
    }
    __syncthreads();
  }
}

// grid (rows), block kThreads
__global__ void __launch_bounds__(kThreads) AssignedKernel(const CastArgs a) {
  SelectShared& shared = *DynamicShared<SelectShared>();
  const CastRow row = RowOf(a, int64_t{blockIdx.x});
  const Assignment all(a, row.sequence, row.clustering);
  WriteMembers(
      a, row, [&](int i) { return all.choice[i] == row.cluster; }, shared);
}

}  // namespace

cudaError_t RunCastAssignment(const CastArgs& args, int64_t tiles128, cudaStream_t stream) {
  const int64_t groups = int64_t{args.sequences} * args.clusterings;
  const auto rows = static_cast<unsigned>(groups * args.shape.clusters);
  const LaunchShape by_tile{
      dim3(static_cast<unsigned>(tiles128), static_cast<unsigned>(args.clusterings)),
      dim3(kChoiceThreads)};
  cudaError_t error = Launch(FirstChoiceKernel, by_tile, stream, args);
  if (error != cudaSuccess) return error;
  error = Launch(FirstRejectionKernel, {dim3(rows), dim3(kThreads), sizeof(RejectShared)}, stream,
                 args);
  if (error != cudaSuccess) return error;
  const LaunchShape by_group{dim3(static_cast<unsigned>(groups)), dim3(kThreads),
                             sizeof(SelectShared)};
  error = Launch(LaterRoundsKernel, by_group, stream, args);
  if (error != cudaSuccess) return error;
  return Launch(AssignedKernel, {dim3(rows), dim3(kThreads), sizeof(SelectShared)}, stream, args);
}

}  // namespace castor::kernels::cuda
