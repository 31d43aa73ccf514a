#include "engine/attention/clustered/clustering.h"

#include <algorithm>
#include <numeric>

#include "engine/kernels/area.h"
#include "engine/kernels/count.h"
#include "engine/kernels/philox.h"

namespace castor::attention {

using kernels::Area;
using kernels::ClusterKernel;
using kernels::Count;
using kernels::Philox;
using kernels::PhiloxNormal;
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

int64_t Clusterer::FirstCentroid(int64_t c, int64_t clusters, int64_t count, uint64_t seed) {
  const int64_t begin = c * count / clusters;
  const int64_t end = (c + 1) * count / clusters;
  const uint64_t x0 = Philox(RandomStream::kCentroid, static_cast<uint32_t>(c), 0, seed)[0];
  return begin + static_cast<int64_t>((x0 * (end - begin)) >> 32);
}

namespace {

int64_t ClustersOf(const Clustered& parameters, int64_t queries) {
  return std::min<int64_t>(parameters.clusters, queries);
}

constexpr int64_t kAlignment = 64;

Count LayOut(kernels::CodeClustering& state, std::byte* base) {
  const Count blocks = Count(state.padded_count()).Units(64);
  Area area(base, kAlignment);
  area.Allocate(state.labels, state.count);
  area.Allocate(state.members, state.clusters);
  area.Allocate(state.centroids, state.clusters);
  area.Allocate(state.planes, state.padded_count());
  area.Allocate(state.label_planes, blocks * state.label_bits());
  area.Allocate(state.moved, blocks);
  area.Allocate(state.ones, Count(state.clusters) * 64);
  area.Allocate(state.picks, Count(state.clusters) * kernels::kCodeGroups);
  return area.bytes();
}

}  // namespace

CodeClusterer::CodeClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                             int64_t most_codes)
    : Clusterer(ClustersOf(parameters, most_codes)), kernel_(kernel), parameters_(parameters) {
  state_.bits = parameters.bits;
  state_.count = most_codes;
  state_.clusters = ClustersOf(parameters, most_codes);
  memory_ = AllocateAligned<std::byte>(LayOut(state_, nullptr).value());
  LayOut(state_, memory_.get());
}

Count CodeClusterer::Bytes(const Clustered& parameters, int64_t most_codes) {
  kernels::CodeClustering state;
  state.count = most_codes;
  state.clusters = ClustersOf(parameters, most_codes);
  return LayOut(state, nullptr);
}

void CodeClusterer::Start(std::span<const uint64_t> codes, int32_t* order, int32_t* begin) {
  state_.count = static_cast<int64_t>(codes.size());
  state_.clusters = ClustersOf(parameters_, state_.count);
  state_.codes = codes.data();
  WriteTo(order, begin);
  updates_ = 0;
  first_ = true;
  // Several blocks, unless a block is enough work, so that handing out tasks costs little.
  range_ = (state_.clusters <= 1024 ? 4 : 1) * kernels::kCodeBlock;
  for (int64_t s = 0; s < state_.clusters; ++s) {
    state_.centroids[s] = codes[FirstCentroid(s, state_.clusters, state_.count, parameters_.seed)];
  }
  Begin(Stage::kSlice);
}

void CodeClusterer::Begin(Stage stage) {
  // A distance takes about a fifth of a 512-bit instruction.
  const double operations =
      stage == Stage::kAssign ? 3.0 * static_cast<double>(state_.clusters) : 64;
  stage_ = stage;
  pass_.tasks = (state_.count + range_ - 1) / range_;
  pass_.operations = operations * static_cast<double>(state_.count);
  pass_.ordered = stage == Stage::kMove || stage == Stage::kSort;
}

void CodeClusterer::Do(int64_t task) {
  const int64_t begin = task * range_;
  const int64_t end = std::min(state_.count, begin + range_);
  switch (stage_) {
    case Stage::kSlice:
      return kernel_.slice_codes(state_, begin, end);
    case Stage::kAssign:
      return kernel_.assign_codes(state_, begin, end, first_);
    case Stage::kMove:
      moved_count_ += kernel_.move_codes(state_, begin, end, first_);
      return;
    case Stage::kSort:
      return Sort(state_.labels, begin, end);
  }
}

void CodeClusterer::Next() {
  switch (stage_) {
    case Stage::kSlice:
      kernel_.pick_centroids(state_);
      return Begin(Stage::kAssign);
    case Stage::kAssign:
      moved_count_ = 0;
      return Begin(Stage::kMove);
    case Stage::kMove:
      if (MoveCentroids()) return Begin(Stage::kAssign);
      PlaceClusters(members());
      return Begin(Stage::kSort);
    case Stage::kSort:
      pass_ = Pass();
  }
}

// Updates the centroids, unless done. Returns whether labels must be assigned again.
bool CodeClusterer::MoveCentroids() {
  const bool converged = !first_ && moved_count_ == 0;
  first_ = false;
  if (converged || updates_ == parameters_.iterations) return false;
  ++updates_;
  return kernel_.update_centroids(state_);
}

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

// Queries, or centroids, of a task.
constexpr int64_t kQueryRange = 1024;

int64_t TasksOfQueries(int64_t queries) { return Count(queries).Units(kQueryRange).value(); }

// Floats of scratch memory for one task, rounded up to whole vectors.
Count TaskFloats(const ClusterKernel& kernel, int64_t head_dim) {
  return Count(kernel.query_scratch_floats(head_dim)).RoundedUp(16);
}

}  // namespace

Count QueryClusterer::Arrays::LayOut(const ClusterKernel& kernel, std::byte* base) {
  const int64_t dim = state.head_dim;
  const int64_t tasks = TasksOfQueries(state.count);
  Area area(base, kAlignment);
  area.Allocate(state.labels, state.count);
  area.Allocate(state.members, state.clusters);
  area.Allocate(state.metric, kernel.metric_floats(dim));
  area.Allocate(state.means, Count(state.clusters) * dim);
  area.Allocate(state.images, Count(state.clusters) * dim);
  area.Allocate(state.halves, state.clusters);
  area.Allocate(moved, tasks);
  // Shared by all tasks. The task that measures keys runs alone, and may use all of it.
  area.Allocate(scratch, std::max(TaskFloats(kernel, dim) * tasks,
                                  Count(kernel.measure_scratch_floats(dim))));
  return area.bytes();
}

QueryClusterer::QueryClusterer(const ClusterKernel& kernel, const Clustered& parameters,
                               int64_t head_dim, int64_t most_queries)
    : Clusterer(ClustersOf(parameters, most_queries)),
      kernel_(kernel),
      parameters_(parameters),
      scratch_floats_(TaskFloats(kernel, head_dim).value()) {
  state_.head_dim = head_dim;
  state_.count = most_queries;
  state_.clusters = ClustersOf(parameters, most_queries);
  memory_ = AllocateAligned<std::byte>(arrays_.LayOut(kernel, nullptr).value());
  arrays_.LayOut(kernel, memory_.get());
}

Count QueryClusterer::Bytes(const ClusterKernel& kernel, const Clustered& parameters,
                            int64_t head_dim, int64_t most_queries) {
  Arrays arrays;
  arrays.state.head_dim = head_dim;
  arrays.state.count = most_queries;
  arrays.state.clusters = ClustersOf(parameters, most_queries);
  return arrays.LayOut(kernel, nullptr);
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
  for (int64_t s = 0; s < state_.clusters; ++s) {
    kernel_.draw_centroid(state_, FirstCentroid(s, state_.clusters, state_.count, parameters_.seed),
                          s);
  }
  std::fill_n(state_.labels, state_.count, -1);
  Begin(Stage::kMeasure);
}

void QueryClusterer::Begin(Stage stage) {
  const auto dim = static_cast<double>(state_.head_dim);
  const auto queries = static_cast<double>(state_.count);
  const auto clusters = static_cast<double>(state_.clusters);
  stage_ = stage;
  pass_.tasks = TasksOfQueries(state_.count);
  pass_.ordered = false;
  switch (stage) {
    case Stage::kMeasure:
      pass_.tasks = 1;
      pass_.operations =
          2 * dim * dim *
          static_cast<double>(std::min(state_.keys, kernels::MetricKeys(state_.head_dim)));
      return;
    case Stage::kMap:
      pass_.tasks = TasksOfQueries(state_.clusters);
      pass_.operations = 2 * clusters * dim * dim;
      return;
    case Stage::kAssign:
      pass_.operations = 2 * queries * clusters * dim;
      return;
    case Stage::kAdd:
      pass_.ordered = true;
      pass_.operations = 2 * queries * dim;
      return;
    case Stage::kCount:
    case Stage::kSort:
      pass_.ordered = true;
      pass_.operations = 64 * queries;
      return;
  }
}

void QueryClusterer::Do(int64_t task) {
  const int64_t begin = task * kQueryRange;
  const int64_t end = std::min(state_.count, begin + kQueryRange);
  switch (stage_) {
    case Stage::kMeasure:
      return kernel_.measure_keys(state_, arrays_.scratch);
    case Stage::kMap:
      return kernel_.map_centroids(state_, begin, std::min(state_.clusters, end), Scratch(task));
    case Stage::kAssign:
      arrays_.moved[task] = kernel_.assign_queries(state_, begin, end, Scratch(task));
      return;
    case Stage::kAdd:
      return kernel_.add_queries(state_, begin, end);
    case Stage::kCount:
      for (int64_t i = begin; i < end; ++i) ++state_.members[state_.labels[i]];
      return;
    case Stage::kSort:
      return Sort(state_.labels, begin, end);
  }
}

void QueryClusterer::Next() {
  switch (stage_) {
    case Stage::kMeasure:
    case Stage::kAdd:
      return Begin(Stage::kMap);
    case Stage::kMap:
      return Begin(Stage::kAssign);
    case Stage::kAssign: {
      const bool converged =
          std::accumulate(arrays_.moved, arrays_.moved + pass_.tasks, int64_t{0}) == 0;
      std::fill_n(state_.members, state_.clusters, 0);
      if (converged || updates_ == parameters_.iterations) return Begin(Stage::kCount);
      ++updates_;
      std::fill_n(state_.means, state_.clusters * state_.head_dim, 0.0f);
      return Begin(Stage::kAdd);
    }
    case Stage::kCount:
      PlaceClusters({state_.members, static_cast<size_t>(state_.clusters)});
      return Begin(Stage::kSort);
    case Stage::kSort:
      pass_ = Pass();
  }
}

}  // namespace castor::attention
