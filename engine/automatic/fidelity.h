// The fidelity probe: the error of an approximation against exact attention, measured on a few
// query rows.
//
// Pure functions of their arguments; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/base/dtype.h"
#include "engine/request.h"

namespace castor::attention {

// A selection of each sequence's queries.
struct FidelityRows {
  std::vector<int32_t> tokens;      // positions over all sequences, ascending
  std::vector<int32_t> cu_seqlens;  // [sequences + 1], where each sequence's rows start in `tokens`
};

// The seed of a kernel's random numbers; 0 where it has none.
uint64_t SeedOf(const Kernel& kernel);

// Draws R = min(rows, N_b) rows of each sequence b of N_b queries. Row r is at position
// lo + ((x0 (hi - lo)) >> 32) for lo = floor(r N_b / R) and hi = floor((r + 1) N_b / R), with x0
// from Philox block (r, b, 0) of the fidelity stream. Strata make the rows distinct, and every row
// is drawn if rows >= N_b.
FidelityRows DrawFidelityRows(uint64_t seed, int32_t rows, std::span<const int32_t> cu_seqlens_q);

// Copies the chosen rows of `tokens`, `stride` elements apart and `row` elements each, one after
// another: out [rows, row].
void GatherRows(DType dtype, const std::byte* tokens, int64_t stride, int64_t row,
                std::span<const int32_t> chosen, std::byte* out);

// ||approximate - exact||_2 / ||exact||_2 over the chosen rows, in double precision: approximate
// [tokens, stride], of which each token's first `row` elements count, and exact [rows, row]. Zero
// if the two are equal; infinite if only the exact rows are all zero, or if either has NaN or Inf
// in it.
double RelativeError(DType dtype, const std::byte* approximate, int64_t stride, int64_t row,
                     std::span<const int32_t> chosen, const std::byte* exact);

}  // namespace castor::attention
