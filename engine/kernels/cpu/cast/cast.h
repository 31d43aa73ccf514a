// CAST attention on the CPU (Engelenhoven, Strisciuglio, Talavera 2024, arXiv 2402.04239): the
// parts that compute. kernels/assignment.h decides which tokens belong to which cluster;
// attention/cast_cpu.cc cuts and orders tasks. attention/cast.md explains the steps.
//
// Lanes hold tokens, as in flash.h: scores, maxima, weights and outputs of neighbouring tokens lie
// in neighbouring lanes. Surrogate tokens, summaries, and a cluster's keys and values are only
// broadcast. Arithmetic is float32 for all elements. The results of a token and a cluster depend on
// their sequence alone, not on the tile, lane or thread.
//
// Functions are re-entrant; a scratch area belongs to one call at a time.
#pragma once

#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels {

// The parameters that all sequences of a launch share.
struct CastShape {
  Element element = Element::kFloat32;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t clusters = 0;
  double scale = 0;      // of the scores
  bool laplace = false;  // f: softmax or, elementwise, MEGA's laplace
  int64_t group = 1;     // neighbouring heads that have the same keys and values
};

// One sequence. Strides count elements from one token to the next; heads are contiguous in a token.
struct CastSequence {
  const void* query = nullptr;  // [tokens, heads, head_dim]
  const void* key = nullptr;    // [tokens, heads / group, head_dim]
  const void* value = nullptr;  // [tokens, heads / group, value_dim]
  void* output = nullptr;       // [tokens, heads, value_dim]
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;

  const float* surrogates = nullptr;         // [heads, clusters, head_dim], see pack_surrogates
  const float* query_share = nullptr;        // [tokens] sigma(phi)
  const float* query_temperature = nullptr;  // [tokens] sp1(phi), or 1
  const float* key_temperature = nullptr;    // [tokens] sp1(-phi), or 1

  int64_t value_head_stride = 0;  // elements from one head's value to the next of its token
};

// Most tokens in a tile of `affinities` and `combine`, and most queries in one of `inside`.
inline constexpr int64_t kCastTokens = 96;
inline constexpr int64_t kCastQueries = 256;

// Keys of `inside` whose scores are in memory at a time. Part of the results' definition: sums are
// over blocks of this size.
inline constexpr int64_t kCastKeyBlock = 128;

// A cluster in one head.
struct CastCluster {
  int64_t head = 0;
  int64_t next_head = -1;  // whose rows to prefetch meanwhile; -1: none
  int64_t cluster = 0;
  const int32_t* members = nullptr;  // [count] tokens, ascending
  int64_t count = 0;
};

// The clusters that the tokens of a tile are in.
struct CastOwnClusters {
  const int32_t* members = nullptr;  // tokens of all clusters, ascending in each
  const int32_t* begin = nullptr;    // [clusters] in `members`: the first one in the tile ...
  const int32_t* end = nullptr;      // [clusters] ... and the first one after it
  // The result of `inside` for the n-th of a cluster's `members` is row first_row[cluster] + n.
  const int64_t* first_row = nullptr;  // [clusters]
  const float* inside = nullptr;       // [rows, value_dim]
};

// One instruction set's implementation.
struct CastKernel {
  const char* backend;  // "cpu-avx2"
  bool (*runs_here)();  // whether this processor has the instructions

  // Floats of scratch that the functions below need. Scratch is 64-byte aligned.
  int64_t (*scratch_floats)(const CastShape& shape);

  // Packs a layer's surrogates, [clusters, heads, head_dim] of the elements.
  void (*pack_surrogates)(const CastShape& shape, const void* surrogates, float* packed);

  // Steps 1 and 2: affinities[c * stride + i] of the tokens i in [begin, end), over the heads
  // [head_begin, head_end).
  void (*affinities)(const CastShape& shape, const CastSequence& sequence, int64_t head_begin,
                     int64_t head_end, int64_t begin, int64_t end, float* affinities,
                     int64_t stride, float* scratch);

  // Step 4: inside [end - begin, value_dim] of the members [begin, end). With `summary`
  // [value_dim], also step 5. A part of it, over the members [key_begin, key_end) as keys: it
  // begins with key 0, goes on where it stopped, at a multiple of kCastKeyBlock, with the scratch
  // area as it was left, and ends with the last member.
  void (*inside)(const CastShape& shape, const CastSequence& sequence, const CastCluster& cluster,
                 int64_t begin, int64_t end, int64_t key_begin, int64_t key_end, float* inside,
                 float* summary, float* scratch);

  // Step 6 for one head: output rows of the tokens [begin, end). summaries [clusters, value_dim].
  void (*combine)(const CastShape& shape, const CastSequence& sequence, int64_t head,
                  const float* summaries, const CastOwnClusters& own, int64_t begin, int64_t end,
                  float* scratch);
};

extern const CastKernel kCastAvx512;
extern const CastKernel kCastAvx2;
extern const CastKernel kCastPortable;

}  // namespace castor::kernels
