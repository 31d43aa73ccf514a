// Ragged pooling: one row per sequence out of the rows of its tokens, and what surrounds it.
//
// Raw pointers and sizes; no tensor library. Each function has an implementation per device, and
// the CPU's, in cpu/pool_rows.cc, is the plain one that the GPU's is checked against. Sums run in
// fp32, in an order that depends on the sequence's own length alone.
#pragma once

#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels {

struct PoolRows {
  const void* rows = nullptr;           // [tokens, >= dimensions] of `element`
  Element element = Element::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  int64_t row_stride = 0;               // elements from token to token
  const int64_t* offsets = nullptr;  // [sequences + 1]: each sequence's first token, and the total
  int64_t sequences = 0;             // each of at least one token
  int64_t dimensions = 0;            // columns that are pooled: the first of each row
  bool mean = true;                  // else the first token's row (CLS)
  bool normalize = false;            // to L2 norm 1, over the pooled columns
  float* output = nullptr;           // [sequences, dimensions]
};

// A norm below this one is taken for it, so that a row of zeros stays one.
inline constexpr float kMinNorm = 1e-12f;

// One flag per sequence: 1 if any of its rows holds a NaN or an infinity, else 0.
struct FlagNonFinite {
  const void* rows = nullptr;  // [tokens, columns] of `element`
  Element element = Element::kFloat32;
  int64_t row_stride = 0;  // elements
  int64_t columns = 0;
  const int64_t* offsets = nullptr;  // [sequences + 1]
  int64_t sequences = 0;
  int32_t* flags = nullptr;  // [sequences]
};

namespace cpu {
void Run(const PoolRows& problem);
void Run(const FlagNonFinite& problem);
}  // namespace cpu

}  // namespace castor::kernels
