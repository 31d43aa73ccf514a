#include "engine/attention/clustering.h"

#include <algorithm>

#include "engine/attention/hash_planes.h"
#include "engine/attention/parallel.h"
#include "engine/kernels/philox.h"

namespace castor::attention {

using kernels::Philox;
using kernels::RandomStream;

HashPlaneSet::HashPlaneSet(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                           int64_t head_dim)
    : kernel_(&kernel), biased_(parameters.hash_bias), seed_(parameters.seed) {
  const PlaneNumbers drawn = DrawPlanes(parameters, head_dim);
  packed_.resize(kernel.packed_planes_floats(parameters.bits, head_dim));
  kernel.pack_planes(parameters.bits, head_dim, drawn.normals.data(), drawn.biases.data(),
                     packed_.data());
  planes_ = {parameters.bits, head_dim, packed_.data()};
}

bool HashPlaneSet::IsFor(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                         int64_t head_dim) const {
  return kernel_ == &kernel && biased_ == parameters.hash_bias && seed_ == parameters.seed &&
         planes_.bits == parameters.bits && planes_.head_dim == head_dim;
}

CodeClusterer::CodeClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                             int64_t most_codes)
    : kernel_(kernel), parameters_(parameters) {
  state_.bits = parameters.bits;
  state_.count = most_codes;
  state_.clusters = std::min<int64_t>(parameters.clusters, most_codes);
  labels_.resize(state_.count);
  members_.resize(state_.clusters);
  centroids_.resize(state_.clusters);
  planes_.resize(state_.padded_count());
  label_planes_.resize(state_.padded_count() / 64 * state_.label_bits());
  moved_.resize(state_.padded_count() / 64);
  ones_.resize(state_.clusters * 64);
  picks_.resize(state_.clusters * kernels::kCodeGroups);
  next_.resize(state_.clusters);
  state_.labels = labels_.data();
  state_.members = members_.data();
  state_.centroids = centroids_.data();
  state_.planes = planes_.data();
  state_.label_planes = label_planes_.data();
  state_.moved = moved_.data();
  state_.ones = ones_.data();
  state_.picks = picks_.data();
}

Count CodeClusterer::Bytes(const Clustered& parameters, int64_t most_codes) {
  kernels::CodeClustering state;
  state.count = most_codes;
  state.clusters = std::min<int64_t>(parameters.clusters, most_codes);
  const Count padded = state.padded_count();
  const int64_t per_cluster = 2 * sizeof(int32_t) + sizeof(uint64_t) + 64 * sizeof(int32_t) +
                              kernels::kCodeGroups * sizeof(uint16_t);
  return Count(most_codes) * static_cast<int64_t>(sizeof(int32_t)) +
         (padded + padded.Units(64) * (state.label_bits() + 1)) *
             static_cast<int64_t>(sizeof(uint64_t)) +
         Count(state.clusters) * per_cluster;
}

// Calls body(begin, end) for ranges of codes that make up all of them.
template <typename Body>
void CodeClusterer::ForBlocks(bool threads, double flops_per_code, Body body) {
  if (!threads) return body(int64_t{0}, state_.count);
  // Some blocks a task, so that handing out tasks costs little.
  constexpr int64_t kCodes = 4 * kernels::kCodeBlock;
  ParallelFor(
      (state_.count + kCodes - 1) / kCodes, flops_per_code * static_cast<double>(state_.count),
      [&](int, int64_t task) { body(task * kCodes, std::min(state_.count, (task + 1) * kCodes)); });
}

int CodeClusterer::Run(std::span<const uint64_t> codes, bool threads) {
  state_.count = static_cast<int64_t>(codes.size());
  state_.clusters = std::min<int64_t>(parameters_.clusters, state_.count);
  state_.codes = codes.data();

  // A code of each stratum of the sequence.
  for (int64_t s = 0; s < state_.clusters; ++s) {
    const int64_t begin = s * state_.count / state_.clusters;
    const int64_t end = (s + 1) * state_.count / state_.clusters;
    const uint64_t x0 =
        Philox(RandomStream::kCentroid, static_cast<uint32_t>(s), 0, parameters_.seed)[0];
    centroids_[s] = codes[begin + static_cast<int64_t>((x0 * (end - begin)) >> 32)];
  }

  const auto assign = [&](bool first) {
    // A code's distances take a fifth of an operation each, of 512 bits.
    ForBlocks(threads, 3.0 * static_cast<double>(state_.clusters),
              [&](int64_t begin, int64_t end) { kernel_.assign_codes(state_, begin, end, first); });
    return kernel_.move_codes(state_, first) != 0;
  };
  ForBlocks(threads, 64,
            [&](int64_t begin, int64_t end) { kernel_.slice_codes(state_, begin, end); });
  kernel_.pick_centroids(state_);
  assign(/*first=*/true);
  int updates = 0;
  while (updates < parameters_.iterations) {
    const bool changed = kernel_.update_centroids(state_);
    ++updates;
    if (!changed || !assign(/*first=*/false)) break;
  }
  return updates;
}

int64_t CodeClusterer::Sort(int32_t* order, int32_t* begin) {
  int64_t clusters = 0;
  int32_t at = 0;
  for (int64_t c = 0; c < state_.clusters; ++c) {
    next_[c] = at;
    if (members_[c] == 0) continue;
    begin[clusters++] = at;
    at += members_[c];
  }
  begin[clusters] = at;
  for (int64_t i = 0; i < state_.count; ++i) order[next_[labels_[i]]++] = static_cast<int32_t>(i);
  return clusters;
}

}  // namespace castor::attention
