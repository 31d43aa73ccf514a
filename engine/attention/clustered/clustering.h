// The clusterings of clustered attention on the CPU, with a kernel of kernels/cpu/clusters.h: hash
// planes and Lloyd's algorithm in Hamming space, or on the queries themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/passes.h"
#include "engine/request.h"

namespace castor::attention {

// Clusters the queries of one head after another. When the passes end, `order` [queries] holds the
// tokens by cluster, ascending in each, and `begin` [clusters() + 1] holds where each cluster that
// has members begins in `order`, and the end.
class Clusterer : public kernels::Passes {
 public:
  // The number of clusters with members after the last finished clustering.
  int64_t clusters() const { return clusters_; }

 protected:
  // Allocates memory for `most_clusters`.
  explicit Clusterer(int64_t most_clusters) : next_(most_clusters) {}

  // Sets where the next clustering's result goes.
  void WriteTo(int32_t* order, int32_t* begin) {
    order_ = order;
    begin_ = begin;
  }

  // Sets the clusters' begins from their numbers of members. Empty clusters are left out.
  void PlaceClusters(std::span<const int32_t> members) {
    clusters_ = 0;
    int32_t at = 0;
    for (size_t c = 0; c < members.size(); ++c) {
      next_[c] = at;
      if (members[c] == 0) continue;
      begin_[clusters_++] = at;
      at += members[c];
    }
    begin_[clusters_] = at;
  }

  // The query, of `count`, that is the first centroid of cluster c of `clusters`: drawn from the
  // cluster's stratum of the sequence.
  static int64_t FirstCentroid(int64_t c, int64_t clusters, int64_t count, uint64_t seed);

  // Sorts one range of tokens after another, after PlaceClusters.
  void Sort(const int32_t* labels, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) order_[next_[labels[i]]++] = static_cast<int32_t>(i);
  }

 private:
  int64_t clusters_ = 0;
  int32_t* order_ = nullptr;
  int32_t* begin_ = nullptr;
  std::vector<int32_t> next_;  // [clusters]: where a cluster's next token goes
};

// Random hyperplanes, packed for `kernel`. Owns its memory; immutable.
class HashPlaneSet {
 public:
  HashPlaneSet(const kernels::ClusterKernel& kernel, const Clustered& parameters, int64_t head_dim);

  HashPlaneSet(const HashPlaneSet&) = delete;
  HashPlaneSet& operator=(const HashPlaneSet&) = delete;

  const kernels::PackedPlanes& planes() const { return planes_; }

  // True if the same arguments would make the same planes.
  bool IsFor(const kernels::ClusterKernel& kernel, const Clustered& parameters,
             int64_t head_dim) const;

 private:
  const kernels::ClusterKernel* kernel_;
  bool biased_;
  uint64_t seed_;
  std::vector<float> packed_;
  kernels::PackedPlanes planes_;
};

// Clusters codes: memory, passes and result. All arithmetic is on integers, so labels match the
// definition for any kernel and any number of threads.
class CodeClusterer final : public Clusterer {
 public:
  // For at most `most_codes` codes at a time. All memory is allocated here.
  CodeClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                int64_t most_codes);
  CodeClusterer(const CodeClusterer&) = delete;
  CodeClusterer& operator=(const CodeClusterer&) = delete;

  // Bytes that an object for `most_codes` codes holds.
  static kernels::Count Bytes(const Clustered& parameters, int64_t most_codes);

  // Begins with the codes, at least one, of one head of one sequence. `begin` must have room for
  // min(clusters, codes) + 1.
  void Start(std::span<const uint64_t> codes, int32_t* order, int32_t* begin);
  void Do(int64_t task) override;
  void Next() override;

  // The number of updates that the last finished clustering took.
  int updates() const { return updates_; }

  // The last clustering's results: labels [codes], the others [min(clusters, codes)].
  std::span<const int32_t> labels() const {
    return {state_.labels, static_cast<size_t>(state_.count)};
  }
  std::span<const int32_t> members() const {
    return {state_.members, static_cast<size_t>(state_.clusters)};
  }
  std::span<const uint64_t> centroids() const {
    return {state_.centroids, static_cast<size_t>(state_.clusters)};
  }

 private:
  enum class Stage { kSlice, kAssign, kMove, kSort };

  void Begin(Stage stage);
  bool MoveCentroids();

  const kernels::ClusterKernel& kernel_;
  const Clustered& parameters_;
  kernels::CodeClustering state_;
  Stage stage_ = Stage::kSlice;  // of the current pass
  int64_t range_ = 0;            // codes per task
  bool first_ = true;            // no code has a label yet
  int64_t moved_count_ = 0;      // codes with a new label in this iteration
  int updates_ = 0;
  AlignedArray<std::byte> memory_;  // of the state
};

// The random hyperplanes that hash the queries of clustered attention: the same for every head,
// sequence and device. Pure; any thread may call it.
struct PlaneNumbers {
  std::vector<float> normals;  // [bits, head_dim]
  std::vector<float> biases;   // [bits], zero without hash_bias
};

// Drawn from the seed of `parameters`. Requires a count of normals that memory can hold.
PlaneNumbers DrawPlanes(const Clustered& parameters, int64_t head_dim);

// Clusters queries in the metric of their keys: memory, passes and result. Arithmetic is on floats
// in an order that the head alone decides, so labels are the same for any number of threads, though
// not for every kernel.
class QueryClusterer final : public Clusterer {
 public:
  // For at most `most_queries` queries of `head_dim` elements at a time. All memory is allocated
  // here.
  QueryClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                 int64_t head_dim, int64_t most_queries);
  QueryClusterer(const QueryClusterer&) = delete;
  QueryClusterer& operator=(const QueryClusterer&) = delete;

  // Bytes that an object holds.
  static kernels::Count Bytes(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                              int64_t head_dim, int64_t most_queries);

  // Begins with the queries and keys of `head`, at least one each; its other fields are ignored.
  void Start(const kernels::QueryClustering& head, int32_t* order, int32_t* begin);
  void Do(int64_t task) override;
  void Next() override;

 private:
  enum class Stage { kMeasure, kMap, kAssign, kAdd, kCount, kSort };

  // The arrays of the state and of the passes; in `base`, or only counted.
  struct Arrays {
    kernels::Count LayOut(const kernels::ClusterKernel& kernel, std::byte* base);
    kernels::QueryClustering state;
    int64_t* moved = nullptr;  // [tasks]: labels that the last assignment changed
    float* scratch = nullptr;  // [tasks, scratch floats]
  };

  void Begin(Stage stage);
  float* Scratch(int64_t task) { return arrays_.scratch + task * scratch_floats_; }

  const kernels::ClusterKernel& kernel_;
  const Clustered& parameters_;
  const int64_t scratch_floats_;  // of a task
  Arrays arrays_;
  kernels::QueryClustering& state_ = arrays_.state;
  Stage stage_ = Stage::kMeasure;  // of the current pass
  int updates_ = 0;
  AlignedArray<std::byte> memory_;  // of the arrays
};

}  // namespace castor::attention
