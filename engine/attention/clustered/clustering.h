// The clustering of clustered attention on the CPU: hash planes, and Lloyd's algorithm in Hamming
// space with a kernel of kernels/cpu/clusters.h. After hashing, all arithmetic is on integers, so
// labels match the definition for any kernel and any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/clustered/clusterer.h"
#include "engine/attention/count.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/request.h"

namespace castor::attention {

// Random hyperplanes, packed for `kernel`. Owns its memory; immutable.
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

// Clusters the codes of one head after another: memory, passes and result.
class CodeClusterer final : public Clusterer {
 public:
  // For at most `most_codes` codes at a time. All memory is allocated here.
  CodeClusterer(const kernels::ClusterKernel& kernel, const Clustered& parameters,
                int64_t most_codes);
  CodeClusterer(const CodeClusterer&) = delete;
  CodeClusterer& operator=(const CodeClusterer&) = delete;

  // Bytes that an object for `most_codes` codes holds.
  static Count Bytes(const Clustered& parameters, int64_t most_codes);

  // Begins with the codes, at least one, of one head of one sequence. `begin` must have room for
  // min(clusters, codes) + 1.
  void Start(std::span<const uint64_t> codes, int32_t* order, int32_t* begin);
  void Do(int64_t task) override;
  void Next() override;

  // Of the last finished clustering: how many updates it took.
  int updates() const { return updates_; }

  // Of the last clustering: labels [codes], the others [min(clusters, codes)].
  std::span<const int32_t> labels() const { return std::span(labels_).first(state_.count); }
  std::span<const int32_t> members() const { return std::span(members_).first(state_.clusters); }
  std::span<const uint64_t> centroids() const {
    return std::span(centroids_).first(state_.clusters);
  }

 private:
  enum class Part { kSlice, kAssign, kMove, kSort };

  void Begin(Part part);
  void DrawCentroids();
  bool MoveCentroids();

  const kernels::ClusterKernel& kernel_;
  const Clustered& parameters_;
  kernels::CodeClustering state_;
  Part part_ = Part::kSlice;  // of the current pass
  int64_t range_ = 0;         // codes per task
  bool first_ = true;         // no code has a label yet
  int64_t moved_count_ = 0;   // codes with a new label in this iteration
  int updates_ = 0;
  std::vector<int32_t> labels_;
  std::vector<int32_t> members_;
  std::vector<uint64_t> centroids_;
  std::vector<uint64_t> planes_;
  std::vector<uint64_t> label_planes_;
  std::vector<uint64_t> moved_;
  std::vector<int32_t> ones_;
  std::vector<uint16_t> picks_;
};

}  // namespace castor::attention
