// The other clustering of clustered attention on the CPU: Lloyd's algorithm on the queries
// themselves, in the metric of the keys, with a kernel of kernels/cpu/clusters.h. Arithmetic is on
// floats in an order that the head alone decides, so labels are the same for any number of threads,
// though not for every kernel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/clustered/clusterer.h"
#include "engine/attention/count.h"
#include "engine/base/aligned.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/request.h"

namespace castor::attention {

// Clusters the queries of one head after another: memory, passes and result.
class QueryClusterer final : public Clusterer {
 public:
  // For at most `most_queries` queries of `head_dim` elements at a time. All memory is allocated
  // here.
  QueryClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                 int64_t head_dim, int64_t most_queries);
  QueryClusterer(const QueryClusterer&) = delete;
  QueryClusterer& operator=(const QueryClusterer&) = delete;

  // Bytes that an object holds.
  static Count Bytes(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                     int64_t head_dim, int64_t most_queries);

  // Begins with the queries and keys of `head`, at least one each; its other fields are ignored.
  void Start(const kernels::QueryClustering& head, int32_t* order, int32_t* begin);
  void Do(int64_t task) override;
  void Next() override;

 private:
  enum class Part { kMeasure, kMap, kAssign, kAdd, kCount, kSort };

  void Begin(Part part);
  void DrawCentroids();
  float* Scratch(int64_t task) { return scratch_.get() + task * scratch_floats_; }
  std::span<const int32_t> members() const { return std::span(members_).first(state_.clusters); }

  const kernels::ClusterKernel& kernel_;
  const Clustered& parameters_;
  const int64_t scratch_floats_;  // of a task
  kernels::QueryClustering state_;
  Part part_ = Part::kMeasure;  // of the current pass
  int updates_ = 0;
  std::vector<int32_t> labels_;
  std::vector<int32_t> members_;
  std::vector<int64_t> moved_;   // [tasks]: labels that the last assignment changed
  AlignedArray<float> floats_;   // the metric, means, images and halves
  AlignedArray<float> scratch_;  // [tasks, scratch floats]
};

}  // namespace castor::attention
