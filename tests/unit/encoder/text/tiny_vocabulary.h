// Token ids of the tiny BERT's vocabulary: tests/golden/encoder/make_tiny_bert.py.
#pragma once

#include <cstdint>

namespace castor::hf {

inline constexpr int64_t kUnk = 1, kCls = 2, kSep = 3;
inline constexpr int64_t kThe = 8, kCat = 9, kSat = 10, kMat = 12, kS = 13;

}  // namespace castor::hf
