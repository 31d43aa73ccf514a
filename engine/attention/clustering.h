// The clustering of clustered attention on the CPU: hash planes, and Lloyd's algorithm in Hamming
// space over a kernel of kernels/cpu/clusters.h. Integers once the codes are there, so labels are
// those of the definition for any kernel and any number of threads.
//
// Called on a device's engine thread, as parallel.h says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/count.h"
#include "engine/kernels/cpu/clusters.h"
#include "engine/request.h"

namespace castor::attention {

// Random hyperplanes in the order that `kernel` wants. Owns its memory; constant once made.
class HashPlaneSet {
 public:
  HashPlaneSet(const kernels::ClusterKernel& kernel, const Clustered& parameters, int64_t head_dim);

  HashPlaneSet(const HashPlaneSet&) = delete;
  HashPlaneSet& operator=(const HashPlaneSet&) = delete;

  const kernels::PackedPlanes& planes() const { return planes_; }

  // Whether the same arguments would make the same planes.
  bool IsFor(const kernels::ClusterKernel& kernel, const Clustered& parameters,
             int64_t head_dim) const;

 private:
  const kernels::ClusterKernel* kernel_;
  bool biased_;
  uint64_t seed_;
  std::vector<float> packed_;
  kernels::PackedPlanes planes_;
};

// Scratch memory and result of one head's clustering after another. One thread at a time.
class CodeClusterer {
 public:
  // For at most `most_codes` codes at a time. All memory is taken here.
  CodeClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                int64_t most_codes);
  CodeClusterer(const CodeClusterer&) = delete;
  CodeClusterer& operator=(const CodeClusterer&) = delete;

  // Bytes that an object for so many codes holds.
  static Count Bytes(const Clustered& parameters, int64_t most_codes);

  // Clusters one head's codes, one or more, of one sequence. `threads`: let ParallelFor share out
  // the work, or do it all on this thread. Returns how many updates it took.
  int Run(std::span<const uint64_t> codes, bool threads);

  // Of the last run; min(clusters, codes) of the latter two.
  std::span<const int32_t> labels() const { return std::span(labels_).first(state_.count); }
  std::span<const int32_t> members() const { return std::span(members_).first(state_.clusters); }
  std::span<const uint64_t> centroids() const {
    return std::span(centroids_).first(state_.clusters);
  }

  // The last run's tokens, cluster after cluster and in their order within each, and where each
  // cluster that has members begins. `begin` has room for min(clusters, codes) + 1; returns how
  // many clusters have members.
  int64_t Sort(int32_t* order, int32_t* begin);

 private:
  template <typename Body>
  void ForBlocks(bool threads, double flops_per_code, Body body);

  const kernels::ClusterKernel& kernel_;
  const Clustered& parameters_;
  kernels::CodeClustering state_;
  std::vector<int32_t> labels_;
  std::vector<int32_t> members_;
  std::vector<uint64_t> centroids_;
  std::vector<uint64_t> planes_;
  std::vector<uint64_t> label_planes_;
  std::vector<uint64_t> moved_;
  std::vector<int32_t> ones_;
  std::vector<uint16_t> picks_;
  std::vector<int32_t> next_;  // [clusters], while sorting
};

}  // namespace castor::attention
