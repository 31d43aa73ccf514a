#include "engine/attention/clustered/clustering.h"

#include <algorithm>
#include <numeric>

#include "engine/kernels/count.h"
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

using kernels::Philox;
using kernels::PhiloxNormal;
using kernels::RandomStream;

PlaneNumbers DrawPlanes(const Clustered& parameters, int64_t head_dim) {
  PlaneNumbers planes;
  planes.normals.reserve((Count(parameters.bits) * head_dim).value());
  for (int t = 0; t < parameters.bits; ++t) {
    const auto plane = static_cast<uint32_t>(t);
    for (int64_t e = 0; e < head_dim; ++e) {
      planes.normals.push_back(PhiloxNormal(
          Philox(RandomStream::kPlane, static_cast<uint32_t>(e), plane, parameters.seed)));
    }
    planes.biases.push_back(
        parameters.hash_bias ? PhiloxNormal(Philox(RandomStream::kBias, 0, plane, parameters.seed))
                             : 0);
  }
  return planes;
}

namespace {

using kernels::ClusterKernel;

// Queries, or centroids, of a task.
constexpr int64_t kQueryRange = 1024;

int64_t ClustersOf(const Clustered& parameters, int64_t queries) {
  return std::min<int64_t>(parameters.clusters, queries);
}

int64_t TasksOfQueries(int64_t queries) { return Count(queries).Units(kQueryRange).value(); }

Count AlignedFloats(Count floats) { return floats.RoundedUp(16); }

// Of all tasks. The one that measures keys runs alone, and may take all of it.
int64_t TaskFloats(const ClusterKernel& kernel, int64_t head_dim) {
  return AlignedFloats(kernel.query_scratch_floats(head_dim)).value();
}
Count ScratchFloatsOf(const ClusterKernel& kernel, int64_t head_dim, int64_t queries) {
  return std::max(Count(TaskFloats(kernel, head_dim)) * TasksOfQueries(queries),
                  AlignedFloats(kernel.measure_scratch_floats(head_dim)));
}

// The metric, means, images and halves.
Count StateFloats(const ClusterKernel& kernel, int64_t head_dim, int64_t clusters) {
  const Count rows = AlignedFloats(Count(clusters) * head_dim);
  return AlignedFloats(kernel.metric_floats(head_dim)) + rows * 2 + AlignedFloats(clusters);
}

}  // namespace

QueryClusterer::QueryClusterer(const ClusterKernel& kernel, const Clustered& parameters,
                               int64_t head_dim, int64_t most_queries)
    : Clusterer(ClustersOf(parameters, most_queries)),
      kernel_(kernel),
      parameters_(parameters),
      scratch_floats_(TaskFloats(kernel, head_dim)) {
  const int64_t clusters = ClustersOf(parameters, most_queries);
  labels_.resize(most_queries);
  members_.resize(clusters);
  moved_.resize(TasksOfQueries(most_queries));
  floats_ = AllocateAligned<float>(StateFloats(kernel, head_dim, clusters).value());
  scratch_ = AllocateAligned<float>(ScratchFloatsOf(kernel, head_dim, most_queries).value());
  state_.head_dim = head_dim;
  state_.labels = labels_.data();
  state_.members = members_.data();
  state_.metric = floats_.get();
  state_.means = state_.metric + AlignedFloats(kernel.metric_floats(head_dim)).value();
  state_.images = state_.means + AlignedFloats(clusters * head_dim).value();
  state_.halves = state_.images + AlignedFloats(clusters * head_dim).value();
}

Count QueryClusterer::Bytes(const ClusterKernel& kernel, const Clustered& parameters,
                            int64_t head_dim, int64_t most_queries) {
  const int64_t clusters = ClustersOf(parameters, most_queries);
  return (Count(most_queries) + Count(clusters) * 2) * static_cast<int64_t>(sizeof(int32_t)) +
         Count(TasksOfQueries(most_queries)) * static_cast<int64_t>(sizeof(int64_t)) +
         (StateFloats(kernel, head_dim, clusters) +
          ScratchFloatsOf(kernel, head_dim, most_queries)) *
             static_cast<int64_t>(sizeof(float));
}

void QueryClusterer::Start(const kernels::QueryClustering& head, int32_t* order, int32_t* begin) {
  state_.element = head.element;
  state_.query = head.query;
  state_.query_stride = head.query_stride;
  state_.count = head.count;
  state_.key = head.key;
  state_.key_stride = head.key_stride;
  state_.keys = head.keys;
  state_.clusters = ClustersOf(parameters_, state_.count);
  WriteTo(order, begin);
  updates_ = 0;
  DrawCentroids();
  std::fill_n(labels_.begin(), state_.count, -1);
  Begin(Part::kMeasure);
}

// Draws one query from each stratum of the sequence: the one whose code the other clustering draws.
void QueryClusterer::DrawCentroids() {
  for (int64_t s = 0; s < state_.clusters; ++s) {
    const int64_t begin = s * state_.count / state_.clusters;
    const int64_t end = (s + 1) * state_.count / state_.clusters;
    const uint64_t x0 = kernels::Philox(kernels::RandomStream::kCentroid, static_cast<uint32_t>(s),
                                        0, parameters_.seed)[0];
    kernel_.draw_centroid(state_, begin + static_cast<int64_t>((x0 * (end - begin)) >> 32), s);
  }
}

void QueryClusterer::Begin(Part part) {
  const auto dim = static_cast<double>(state_.head_dim);
  const auto queries = static_cast<double>(state_.count);
  const auto clusters = static_cast<double>(state_.clusters);
  part_ = part;
  pass_.tasks = TasksOfQueries(state_.count);
  pass_.ordered = false;
  switch (part) {
    case Part::kMeasure:
      pass_.tasks = 1;
      pass_.operations =
          2 * dim * dim *
          static_cast<double>(std::min(state_.keys, kernels::MetricKeys(state_.head_dim)));
      return;
    case Part::kMap:
      pass_.tasks = TasksOfQueries(state_.clusters);
      pass_.operations = 2 * clusters * dim * dim;
      return;
    case Part::kAssign:
      pass_.operations = 2 * queries * clusters * dim;
      return;
    case Part::kAdd:
      pass_.ordered = true;
      pass_.operations = 2 * queries * dim;
      return;
    case Part::kCount:
    case Part::kSort:
      pass_.ordered = true;
      pass_.operations = 64 * queries;
      return;
  }
}

void QueryClusterer::Do(int64_t task) {
  const int64_t begin = task * kQueryRange;
  const int64_t end = std::min(state_.count, begin + kQueryRange);
  switch (part_) {
    case Part::kMeasure:
      return kernel_.measure_keys(state_, scratch_.get());
    case Part::kMap:
      return kernel_.map_centroids(state_, begin, std::min(state_.clusters, end), Scratch(task));
    case Part::kAssign:
      moved_[task] = kernel_.assign_queries(state_, begin, end, Scratch(task));
      return;
    case Part::kAdd:
      return kernel_.add_queries(state_, begin, end);
    case Part::kCount:
      for (int64_t i = begin; i < end; ++i) ++members_[labels_[i]];
      return;
    case Part::kSort:
      return Sort(labels_, begin, end);
  }
}

void QueryClusterer::Next() {
  switch (part_) {
    case Part::kMeasure:
    case Part::kAdd:
      return Begin(Part::kMap);
    case Part::kMap:
      return Begin(Part::kAssign);
    case Part::kAssign: {
      const bool settled =
          std::accumulate(moved_.begin(), moved_.begin() + pass_.tasks, int64_t{0}) == 0;
      std::fill_n(members_.begin(), state_.clusters, 0);
      if (settled || updates_ == parameters_.iterations) return Begin(Part::kCount);
      ++updates_;
      std::fill_n(state_.means, state_.clusters * state_.head_dim, 0.0f);
      return Begin(Part::kAdd);
    }
    case Part::kCount:
      PlaceClusters(members());
      return Begin(Part::kSort);
    case Part::kSort:
      pass_ = Pass();
  }
}

}  // namespace castor::attention
