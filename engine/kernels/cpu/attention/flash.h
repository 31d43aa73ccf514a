// Exact attention on the CPU without the score matrix: blocks of keys and an online softmax, with
// memory for one tile and for the keys and values of a head (Dao et al. 2022, arXiv 2205.14135).
//
// Lanes hold queries. A tile keeps its queries transposed, so scores, maxima, sums and outputs of
// neighbouring queries lie in neighbouring lanes, and keys and values are only broadcast. There is
// no horizontal reduction and no transposed copy of the keys. Arithmetic is float32 whatever the
// elements are; only kFlashAvx512Bf16 rounds weights to bfloat16, and takes that type's subnormal
// numbers for zeros.
//
// A query's result depends on that query and on its sequence's keys and values alone: every sum
// runs over the keys in order, in blocks of a fixed size, in any tile, lane or thread.
//
// Sequences of few queries and many keys have a kernel of their own: few_rows.h.
//
// This folder knows neither the tensor library nor absl. Functions are re-entrant; a scratch area
// belongs to one call at a time.
#pragma once

#include <cstdint>

#include "engine/kernels/count.h"
#include "engine/kernels/element.h"

namespace castor::kernels {

inline constexpr int64_t kFlashSeesAll = -1;  // a window without a bound on that side

// The parameters that all tiles of a launch share.
struct FlashShape {
  Element element = Element::kFloat32;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  double scale = 0;  // of the scores

  // A query at place p (FlashPlaces) sees the keys at places up to p, and those at p - left ..
  // p + right; below 2^60.
  bool causal = false;
  int64_t left = kFlashSeesAll;
  int64_t right = kFlashSeesAll;

  double softcap = 0;       // c > 0: scaled scores s become c tanh(s / c), before any bias
  bool biased = false;      // FlashHead has biases
  int64_t bias_reach = -1;  // of FlashHead::bias_table; -1: there is none
};

// The places of a sequence's queries among its keys: key j is at place j, query i at i + shift.
struct FlashPlaces {
  int64_t keys = 0;     // >= 1
  int64_t shift = 0;    // below 2^60, either way
  int64_t visible = 0;  // the number of first keys that no window hides on the left
};

// One head of one sequence, or neighbouring heads with the same keys and values. Strides count
// elements from one token to the next; elements within a row are contiguous.
struct FlashHead {
  const void* query = nullptr;  // [queries, group, head_dim]
  const void* key = nullptr;    // [keys, head_dim]
  const void* value = nullptr;  // [keys, value_dim]
  void* output = nullptr;       // [queries, group, value_dim]
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;
  FlashPlaces places;

  // Heads whose queries fill lanes together: query i of the functions below is that of token
  // i / group in head i % group. More than one only where places do not matter, or in few_rows.h:
  // no mask, window, table or slope.
  int64_t group = 1;

  // Receives the natural logarithm of each query's sum of exponentials, [queries, group], with so
  // many floats from one token to the next; nullptr: not wanted.
  float* log_sum_exp = nullptr;
  int64_t log_sum_exp_stride = 0;

  // FlashPackedFloats of memory for FlashKernel::pack, where tiles then read all keys and values;
  // null: each tile packs for itself.
  float* packed = nullptr;

  // Added to the scaled score of a query and a key, see attention::PositionBias.
  const float* bias_table = nullptr;  // [2 * bias_reach + 1], by the key's place less the query's
  float slope = 0;                    // times minus the distance of their places
  const float* key_bias = nullptr;    // [keys]; null: none
  int64_t key_bias_stride = 0;        // floats from one key's bias to the next
};

// Most queries in a tile: enough to use a block of keys well while it is in the second-level cache,
// few enough to give every core a tile.
inline constexpr int64_t kFlashTileQueries = 192;

// Keys whose scores are in memory at a time. Part of the results' definition: sums are over blocks
// of this size.
inline constexpr int64_t kFlashKeyBlock = 128;

// The keys that the queries [query_begin, query_end) see together: a range, and before it the first
// `visible` keys, unless the range includes them. With a window they are few even in a long
// sequence. There may be none.
struct FlashRange {
  int64_t visible = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t first() const { return visible > 0 ? 0 : begin; }
  int64_t count() const { return visible + end - begin; }
};
[[gnu::always_inline]] inline FlashRange FlashKeys(const FlashShape& shape,
                                                   const FlashPlaces& places, int64_t query_begin,
                                                   int64_t query_end) {
  const int64_t first = query_begin + places.shift;
  const int64_t end = query_end + places.shift;
  FlashRange range = {0, 0, places.keys};
  if (shape.right >= 0 && end + shape.right < range.end) range.end = end + shape.right;
  if (shape.causal && end < range.end) range.end = end;
  if (range.end <= 0) return {};
  if (shape.left < 0 || first <= shape.left) return range;
  range.begin = first - shape.left;
  if (range.begin >= range.end) {  // but for the visible ones
    return {0, 0, places.visible < range.end ? places.visible : range.end};
  }
  if (places.visible < range.begin) {
    range.visible = places.visible;
  } else {
    range.begin = 0;
  }
  return range;
}

// Floats of all packed keys and values of a head.
[[gnu::always_inline]] inline Count FlashPackedFloats(const FlashShape& shape, int64_t keys) {
  return Count(keys) * (Count(shape.head_dim) + shape.value_dim);
}

struct FewRowsKernel;  // few_rows.h

// One instruction set's implementation.
struct FlashKernel {
  const char* backend;  // "cpu-avx2"
  bool (*runs_here)();  // whether this processor has the instructions

  // Floats of scratch that `run` needs for tiles of this shape. Scratch is 64-byte aligned.
  int64_t (*scratch_floats)(const FlashShape& shape);

  // Fills the head's `packed` with blocks of keys and values, in float32 and in the order in which
  // tiles read them: [key_begin, key_end), from a multiple of kFlashKeyBlock to another or to the
  // last key. The scratch area is as `run` has it.
  void (*pack)(const FlashShape& shape, const FlashHead& head, int64_t key_begin, int64_t key_end,
               float* scratch);

  // A part of the work on output rows [query_begin, query_end), at most kFlashTileQueries of them:
  // lets them attend to keys [key_begin, key_end). A tile begins at the first() of FlashKeys, goes
  // on where it stopped, at a multiple of kFlashKeyBlock, with the scratch area as it was left, and
  // writes its rows when key_end is FlashKeys's.
  void (*run)(const FlashShape& shape, const FlashHead& head, int64_t query_begin,
              int64_t query_end, int64_t key_begin, int64_t key_end, float* scratch);

  const FewRowsKernel* few_rows;  // of the same set

  bool only_bfloat16 = false;  // takes no other elements
};

extern const FlashKernel kFlashAvx512Bf16;
extern const FlashKernel kFlashAvx512;
extern const FlashKernel kFlashAvx2;
extern const FlashKernel kFlashPortable;

}  // namespace castor::kernels
