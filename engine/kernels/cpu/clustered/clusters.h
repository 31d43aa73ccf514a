// Clustered attention on the CPU (Vyas, Katharopoulos, Fleuret 2020, arXiv 2007.04825) as stages
// for a launcher: hash queries and cluster their codes, or cluster the queries themselves; let
// centroids attend for their members; and, for improved clustered attention (section 3.3), refine
// each member's row on its cluster's top keys.
//
// Every stage works on one head of one sequence, and its results depend on that head alone, not on
// how the work was cut, the thread or the batch. Like flash.h, this knows neither the tensor
// library nor absl; functions are re-entrant, and a scratch area belongs to one call at a time.
#pragma once

#include <cstdint>

#include "engine/kernels/count.h"
#include "engine/kernels/element.h"

namespace castor::kernels {

// ---- hash codes ------------------------------------------------------------------------------

// Hyperplanes for one head_dim, packed for one instruction set.
struct PackedPlanes {
  int bits = 0;
  int64_t head_dim = 0;
  const float* packed = nullptr;
};

// ---- Lloyd's algorithm in Hamming space ------------------------------------------------------

// Work on codes is cut at multiples of this.
inline constexpr int64_t kCodeBlock = 512;

// The clustering of one head's codes, and the memory that it needs. Codes lie bit-sliced (a plane
// holds one bit of many codes), so that a few logical operations compute hundreds of distances.
struct CodeClustering {
  int bits = 0;  // that codes may have
  int64_t count = 0;
  int64_t clusters = 0;             // >= 1
  const uint64_t* codes = nullptr;  // [count]
  uint64_t* centroids = nullptr;    // [clusters]
  int32_t* labels = nullptr;        // [count]
  int32_t* members = nullptr;       // [clusters]: how many codes have the label

  uint64_t* planes = nullptr;        // [padded count]
  uint64_t* label_planes = nullptr;  // [padded count / 64, label_bits]
  uint64_t* moved = nullptr;         // [padded count / 64]: whose label the last pass changed
  int32_t* ones = nullptr;           // [clusters, 64]: members with the bit
  uint16_t* picks = nullptr;         // [clusters, kCodeGroups]: a centroid's table entries

  // The number of bits of a label.
  int label_bits() const {
    int bits = 0;
    while ((clusters - 1) >> bits != 0) ++bits;
    return bits;
  }
  int64_t padded_count() const { return (count + kCodeBlock - 1) / kCodeBlock * kCodeBlock; }
};
inline constexpr int64_t kCodeGroups = 21;  // of three bits

// ---- Lloyd's algorithm on queries, in the metric of the keys -----------------------------------

// The most keys, evenly spread, that the covariance is computed from: enough for its directions.
[[gnu::always_inline]] constexpr int64_t MetricKeys(int64_t head_dim) {
  return head_dim <= 32 ? 64 : (Count(head_dim) * 2).value();
}

// The clustering of one head's queries by the distance (q - c)' M (q - c), M being the covariance
// of its keys, and the memory that it needs. Strides count elements.
struct QueryClustering {
  Element element = Element::kFloat32;
  int64_t head_dim = 0;
  const void* query = nullptr;  // [count, head_dim]
  int64_t query_stride = 0;
  int64_t count = 0;
  const void* key = nullptr;  // [keys, head_dim]
  int64_t key_stride = 0;
  int64_t keys = 0;
  int64_t clusters = 0;        // >= 1
  int32_t* labels = nullptr;   // [count]
  int32_t* members = nullptr;  // [clusters]: how many queries have the label

  float* metric = nullptr;  // M times a factor, in panels
  float* means = nullptr;   // [clusters, head_dim]: sums of members, then centroids
  float* images = nullptr;  // [clusters, head_dim]: M c
  float* halves = nullptr;  // [clusters]: c' M c / 2
};

// ---- attention of the centroids --------------------------------------------------------------

// Most centroids in a tile, cf. kFlashTileQueries.
inline constexpr int64_t kMostCentroids = 192;

struct CentroidShape {
  Element element = Element::kFloat32;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  double scale = 0;      // of the scores
  int64_t clusters = 0;  // at most, of a tile
  int64_t topk = 0;      // keys on which rows are refined; 0: rows stay their centroid's
  int64_t groups = 0;    // at most, of the other keys, that members weigh; 0: their centroid does
  bool biased = false;   // tiles have key_bias

  // How many sums over keys a centroid has.
  [[gnu::always_inline]] int64_t sums() const { return groups > 0 ? groups : 1; }
};

// Some clusters of one head of one sequence. Strides count elements from one token to the next;
// elements within a row are contiguous.
struct CentroidTile {
  const void* query = nullptr;  // [queries, head_dim]
  const void* key = nullptr;    // [keys, head_dim]
  const void* value = nullptr;  // [keys, value_dim]
  void* output = nullptr;       // [queries, value_dim]
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;
  float* log_sum_exp = nullptr;  // [queries], as in FlashHead
  int64_t log_sum_exp_stride = 0;
  const float* key_bias = nullptr;  // [keys], as in FlashHead
  int64_t key_bias_stride = 0;
  int64_t keys = 0;                // >= 1
  const int32_t* order = nullptr;  // the head's queries, cluster after cluster
  const int32_t* begin = nullptr;  // [clusters + 1]: where in `order` each cluster begins
  int64_t clusters = 0;            // 1 .. CentroidShape::clusters, none empty
  // The head's keys, group after group, and where in that each group ends; without: one group.
  const int32_t* key_order = nullptr;  // [keys]
  const int32_t* group_end = nullptr;  // [groups]
  int64_t groups = 1;                  // 1 .. CentroidShape::groups, none empty

  // The key at a place in `key_order`, and the group of that place.
  [[gnu::always_inline]] int64_t Key(int64_t place) const {
    return key_order == nullptr ? place : key_order[place];
  }
  [[gnu::always_inline]] int64_t Group(int64_t place) const {
    int64_t group = 0;
    while (group + 1 < groups && place >= group_end[group]) ++group;
    return group;
  }
};

// The progress of the work on a tile.
struct CentroidProgress {
  enum class Stage { kMeans, kKeys, kRows } stage = Stage::kMeans;
  int64_t cluster = 0;  // of kMeans and kRows
  int64_t at = 0;       // in the cluster's members, or in the keys
};

// ---- the stages for one instruction set ------------------------------------------------------

struct ClusterKernel {
  const char* backend;  // "cpu-avx2"
  bool (*runs_here)();

  // Floats that `pack_planes` writes: normals [bits, head_dim] and biases [bits] in its own order.
  int64_t (*packed_planes_floats)(int bits, int64_t head_dim);
  void (*pack_planes)(int bits, int64_t head_dim, const float* normals, const float* biases,
                      float* packed);
  // codes[i] has bit t set where query i . normal t > bias t: queries [count, head_dim].
  int64_t (*hash_scratch_floats)(int64_t head_dim);
  void (*hash)(const PackedPlanes& planes, Element element, const void* queries, int64_t stride,
               int64_t count, uint64_t* codes, float* scratch);

  // Transposes codes [begin, end) into planes; begin is a multiple of kCodeBlock, and end too or
  // the count.
  void (*slice_codes)(const CodeClustering& clustering, int64_t begin, int64_t end);
  // Makes the centroids' codes ready for `assign_codes`.
  void (*pick_centroids)(const CodeClustering& clustering);
  // Writes the nearest centroid of each code of the range, ties to the lowest, to label_planes.
  // Sets `moved`, for all codes in the `first` pass.
  void (*assign_codes)(const CodeClustering& clustering, int64_t begin, int64_t end, bool first);
  // Updates labels, members and counts by `moved` of the range, one range after another from the
  // first code on. Returns the number of codes that moved.
  int64_t (*move_codes)(const CodeClustering& clustering, int64_t begin, int64_t end, bool first);
  // Sets each centroid's bits to the majority among the members. A tie gives 0, an empty cluster
  // stays. Returns true if a centroid changed.
  bool (*update_centroids)(const CodeClustering& clustering);

  // Floats of QueryClustering::metric, and of the scratch areas below.
  int64_t (*metric_floats)(int64_t head_dim);
  int64_t (*measure_scratch_floats)(int64_t head_dim);
  int64_t (*query_scratch_floats)(int64_t head_dim);
  // Computes the metric.
  void (*measure_keys)(const QueryClustering& clustering, float* scratch);
  // Makes a query the one member, and so the centroid, of a cluster.
  void (*draw_centroid)(const QueryClustering& clustering, int64_t query, int64_t cluster);
  // Turns sums into means, images and halves, for the clusters [begin, end) that have members.
  // Others stay where they were.
  void (*map_centroids)(const QueryClustering& clustering, int64_t begin, int64_t end,
                        float* scratch);
  // Finds the nearest centroid of each query of [begin, end), ties to the lowest. Returns the
  // number of labels that changed.
  int64_t (*assign_queries)(const QueryClustering& clustering, int64_t begin, int64_t end,
                            float* scratch);
  // Adds the queries [begin, end) to their clusters' sums and counts, which begin as zeros: one
  // range after another from the first query on.
  void (*add_queries)(const QueryClustering& clustering, int64_t begin, int64_t end);

  // Writes the output rows of all members of the tile's clusters, in steps of about `operations`.
  // `progress` is default-constructed at first, and the scratch area stays as a step left it.
  // Returns true if there is more to do.
  int64_t (*attend_scratch_floats)(const CentroidShape& shape);
  bool (*attend)(const CentroidShape& shape, const CentroidTile& tile, double operations,
                 CentroidProgress* progress, float* scratch);
};

extern const ClusterKernel kClusterAvx512;
extern const ClusterKernel kClusterAvx2;
extern const ClusterKernel kClusterPortable;

// The kernels of this build, best first.
inline constexpr const ClusterKernel* kClusterKernels[] = {
#if defined(__x86_64__)
    &kClusterAvx512, &kClusterAvx2,
#endif
    &kClusterPortable};

}  // namespace castor::kernels
