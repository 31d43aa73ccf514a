// Exact attention of few queries to many keys on the CPU, as in decoding: the time is that of
// reading keys and values, so each of their bytes is read once, where it lies, in the order of
// memory, and by all queries that need it.
//
// Lanes hold elements of a row. Keys are divided into parts of a fixed size. A part's sums are kept
// apart until `join` adds them up in the keys' order, so threads may take any part of any head. A
// query's result depends on that query and on its sequence's keys and values alone.
//
// The rules of flash.h apply.
#pragma once

#include <cstdint>

#include "engine/kernels/count.h"
#include "engine/kernels/cpu/attention/flash.h"

namespace castor::kernels {

// Keys of a part, and keys whose scores are in memory at a time. Both belong to the results'
// definition.
inline constexpr int64_t kFewRowsPart = 1024;
inline constexpr int64_t kFewRowsBlock = 32;

// Queries of a head, and others that fill its last tile.
[[gnu::always_inline]] inline int64_t FewRowsPadded(int64_t queries) {
  return queries <= 2 ? queries : (queries + 3) / 4 * 4;
}

// Neighbouring heads of keys and values of one sequence, each with all heads of queries that read
// it: unlike in tiles, places may matter. There are no biases by places.
struct FewRows {
  const FlashHead* heads = nullptr;
  int64_t count = 0;  // of heads
  int64_t rows = 0;   // tokens

  // The sums of a part: FewRowsSums floats for each head.
  float* sums = nullptr;
};

// Floats of a head's sums over a part: for each query weighted values, weights by lane, and the
// maximum.
[[gnu::always_inline]] inline Count FewRowsSums(const FlashShape& shape, int64_t queries) {
  return (Count(shape.value_dim).RoundedUp(16) + 32) * FewRowsPadded(queries);
}

// One instruction set's implementation.
struct FewRowsKernel {
  // Floats of 64-byte aligned scratch for so many queries of each of `heads` heads.
  Count (*scratch_floats)(const FlashShape& shape, int64_t queries, int64_t heads);

  // Sets the sums to those of the keys [key_begin, key_end) of one part.
  void (*attend)(const FlashShape& shape, const FewRows& rows, int64_t key_begin, int64_t key_end,
                 float* scratch);

  // Writes the outputs of one head from the sums of `parts` >= 1 parts, which lie `part_stride`
  // floats apart and are used up.
  void (*join)(const FlashShape& shape, const FewRows& rows, int64_t parts, int64_t part_stride);
};

extern const FewRowsKernel kFewRowsAvx512;
extern const FewRowsKernel kFewRowsAvx2;
extern const FewRowsKernel kFewRowsPortable;

}  // namespace castor::kernels
