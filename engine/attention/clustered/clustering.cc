#include "engine/attention/clustered/clustering.h"

#include <algorithm>

#include "engine/attention/clustered/hash_planes.h"
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
    : Clusterer(std::min<int64_t>(parameters.clusters, most_codes)),
      kernel_(kernel),
      parameters_(parameters) {
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

void CodeClusterer::Start(std::span<const uint64_t> codes, int32_t* order, int32_t* begin) {
  state_.count = static_cast<int64_t>(codes.size());
  state_.clusters = std::min<int64_t>(parameters_.clusters, state_.count);
  state_.codes = codes.data();
  WriteTo(order, begin);
  updates_ = 0;
  first_ = true;
  // Several blocks, unless a block is enough work, so that handing out tasks costs little.
  range_ = (state_.clusters <= 1024 ? 4 : 1) * kernels::kCodeBlock;
  DrawCentroids();
  Begin(Part::kSlice);
}

// Draws one code from each stratum of the sequence.
void CodeClusterer::DrawCentroids() {
  for (int64_t s = 0; s < state_.clusters; ++s) {
    const int64_t begin = s * state_.count / state_.clusters;
    const int64_t end = (s + 1) * state_.count / state_.clusters;
    const uint64_t x0 =
        Philox(RandomStream::kCentroid, static_cast<uint32_t>(s), 0, parameters_.seed)[0];
    centroids_[s] = state_.codes[begin + static_cast<int64_t>((x0 * (end - begin)) >> 32)];
  }
}

void CodeClusterer::Begin(Part part) {
  const auto operations = [&]() -> double {
    switch (part) {
      case Part::kAssign:
        // A distance takes about a fifth of a 512-bit instruction.
        return 3.0 * static_cast<double>(state_.clusters);
      default:
        return 64;
    }
  };
  part_ = part;
  pass_.tasks = (state_.count + range_ - 1) / range_;
  pass_.operations = operations() * static_cast<double>(state_.count);
  pass_.ordered = part == Part::kMove || part == Part::kSort;
}

void CodeClusterer::Do(int64_t task) {
  const int64_t begin = task * range_;
  const int64_t end = std::min(state_.count, begin + range_);
  switch (part_) {
    case Part::kSlice:
      return kernel_.slice_codes(state_, begin, end);
    case Part::kAssign:
      return kernel_.assign_codes(state_, begin, end, first_);
    case Part::kMove:
      moved_count_ += kernel_.move_codes(state_, begin, end, first_);
      return;
    case Part::kSort:
      return Sort(labels_, begin, end);
  }
}

void CodeClusterer::Next() {
  switch (part_) {
    case Part::kSlice:
      kernel_.pick_centroids(state_);
      return Begin(Part::kAssign);
    case Part::kAssign:
      moved_count_ = 0;
      return Begin(Part::kMove);
    case Part::kMove:
      if (MoveCentroids()) return Begin(Part::kAssign);
      PlaceClusters(members());
      return Begin(Part::kSort);
    case Part::kSort:
      pass_ = Pass();
  }
}

// Updates the centroids, unless done. Returns whether labels must be assigned again.
bool CodeClusterer::MoveCentroids() {
  const bool settled = !first_ && moved_count_ == 0;
  first_ = false;
  if (settled || updates_ == parameters_.iterations) return false;
  ++updates_;
  return kernel_.update_centroids(state_);
}

}  // namespace castor::attention
