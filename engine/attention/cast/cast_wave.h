// CAST attention of the sequences of one wave (cast_layout.h): cuts each stage into tasks for the
// kernel of this processor's instruction set, and owns what one stage leaves for the next.
// attention/cast.md explains the steps.
//
// Used on a device's engine thread, like the kernels themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/cast/cast_layout.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/kernels/cpu/cast/cast.h"

namespace castor::attention {

kernels::CastShape CastShapeOf(const Spec& spec);

// One sequence of a batch.
struct CastItem {
  const Problem* problem;
  int64_t sequence;  // in the problem
  int64_t tokens;    // >= 1
};

class CastWave {
 public:
  // `layout` contains the items. `memory` is aligned to 64 bytes and as large as layout.bytes()
  // says for ParallelWorkers() and the kernel's scratch. All must outlive this object.
  CastWave(const kernels::CastKernel& kernel, const Spec& spec, const CastLayout& layout,
           std::span<const CastItem> items, std::byte* memory, RunControl& control);

  // Errors come from the control.
  absl::Status Run();

 private:
  // The members of each cluster, in one head or in all.
  struct Clustering {
    float* affinities;  // [clusters, tokens]
    int32_t* offsets;   // [clusters + 1] indices into members
    int32_t* members;   // [slots] tokens, ascending in each cluster
    int32_t* cuts;      // [tiles + 1, clusters] indices into members: the first in or after a tile
  };

  // One head of a pass.
  struct Head {
    const Clustering* clustering;
    float* summaries;    // [clusters, value_dim]
    int64_t* first_row;  // [clusters] rows of inside_, see kernels::CastOwnClusters
  };

  struct Sequence {
    kernels::CastSequence in;
    const float* gate;   // phi [tokens]
    float* query_share;  // these three: see kernels::CastSequence
    float* query_temperature;
    float* key_temperature;
    int64_t tokens;
    int64_t cluster_size;
    int64_t tiles;
    std::vector<Clustering> clusterings;  // of the pass
    std::vector<Head> heads;              // of the pass

    int64_t TileBegin(int64_t tile) const { return tokens * tile / tiles; }
    int64_t PieceBegin(int64_t tile, int64_t piece, int64_t pieces) const {
      return TileBegin(tile) + (TileBegin(tile + 1) - TileBegin(tile)) * piece / pieces;
    }
  };

  // A tile or a cluster of a sequence, in one of the pass's heads or clusterings.
  struct Task {
    Sequence* sequence;
    int64_t of_pass;
    int64_t index;  // of the tile or the cluster
  };

  // Members [begin, end) of a cluster.
  struct InsideTask {
    const Sequence* sequence;
    kernels::CastCluster cluster;
    int64_t begin;
    int64_t end;
    float* inside;
    float* summary;  // or nullptr

    // Scores and outputs of each query, and about one query more for the summary or gathering rows.
    double operations(const kernels::CastShape& shape) const {
      return 2.0 * static_cast<double>(end - begin + 1) * static_cast<double>(cluster.count) *
             static_cast<double>(shape.head_dim + shape.value_dim);
    }
  };

  template <typename T>
  T* Allocate(int64_t count);
  float* PackedSurrogates(const CastItem& item);
  void Place(const CastItem& item);

  // The tiles, or the clusters, of all sequences, each `of_pass` times.
  std::vector<Task> TileTasks(int64_t of_pass, int64_t tile_begin, int64_t tile_end);
  std::vector<Task> ClusterTasks(int64_t of_pass);

  absl::Status ComputeGates();
  absl::Status FindMembers(int64_t first_head, int64_t clusterings);
  absl::Status ComputeAffinities(int64_t first_head, int64_t clusterings);
  absl::Status SelectMembers(int64_t clusterings);
  absl::Status AssignMembers(int64_t clusterings);
  absl::Status CutMembers(int64_t clusterings);
  absl::Status TilesThatFit(int64_t heads, int64_t* tile) const;
  double PairsOf(int64_t heads) const;
  std::vector<InsideTask> InsideTasks(int64_t first_head, int64_t heads, int64_t tile_begin,
                                      int64_t tile_end) const;
  absl::Status AttendInside(int64_t first_head, int64_t heads, int64_t tile_begin,
                            int64_t tile_end);
  absl::Status Combine(int64_t first_head, int64_t heads, int64_t tile_begin, int64_t tile_end);

  const kernels::CastKernel& kernel_;
  const Spec& spec_;
  const Cast& cast_;
  const kernels::CastShape shape_;
  const CastLayout& layout_;
  const int64_t scratch_floats_;
  RunControl& control_;

  std::byte* memory_;                       // where the free part begins
  const std::byte* packed_from_ = nullptr;  // the surrogates packed last
  float* packed_ = nullptr;
  std::vector<Sequence> sequences_;
  int64_t tokens_ = 0;  // of all sequences
  int64_t tiles_ = 0;   // of the longest sequence
  float* inside_;       // [rows, value_dim] results of the members in the current tiles
  float* scratch_;      // [workers, scratch_floats_]
  uint32_t* ranks_;     // [workers, 2 * longest sequence]
};

}  // namespace castor::attention
