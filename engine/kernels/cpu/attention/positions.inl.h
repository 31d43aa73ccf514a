// Hides keys and adds biases that depend on the places of queries and keys in their sequence, or on
// the key. Score tiles are [count, N lanes] as in products.inl.h: neighbouring lanes hold
// neighbouring queries, so a distance grows by one from lane to lane, and from row to row it falls
// by one. `first_place` is the first lane's. Everything is a template over the vector type, for the
// reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/count.h"
#include "engine/kernels/cpu/linear/panels.inl.h"

namespace castor::kernels {

// A query at place p sees the keys at places p - behind .. p + ahead.
struct VisibleRange {
  int64_t behind;
  int64_t ahead;
};
inline constexpr int64_t kFar = int64_t{1} << 61;  // farther than any key

// Scores of keys that a query does not see become -Inf, whose weight is exactly zero.
template <typename V, int N>
void HideKeys(const VisibleRange& range, int64_t first_place, int64_t key_begin, int64_t count,
              float* scores) {
  constexpr int64_t kWidth = N * V::kLanes;
  const int64_t last_key = key_begin + count - 1;
  if (last_key <= first_place + range.ahead &&
      key_begin >= first_place + kWidth - 1 - range.behind) {
    return;
  }
  const auto within = [](int64_t lanes) {
    return lanes < 0 ? 0 : (lanes > kWidth ? kWidth : lanes);
  };
  for (int64_t j = 0; j < count; ++j) {
    const int64_t distance = key_begin + j - first_place;
    const int64_t seen_from = within(distance - range.ahead);
    const int64_t seen_to = within(distance + range.behind + 1);
    float* const row = scores + j * kWidth;
    for (int64_t lane = 0; lane < seen_from; ++lane) row[lane] = -__builtin_inff();
    for (int64_t lane = seen_to; lane < kWidth; ++lane) row[lane] = -__builtin_inff();
  }
}

// The place of the sequence's key that is nearest to a query's place.
inline int64_t NearestKey(int64_t place, int64_t keys) {
  return place < 0 ? 0 : (place < keys ? place : keys - 1);
}

// Subtracts slope * (|query - key| - |query - nearest key|). Floats hold no large distance, and the
// second term is the same for all keys of a row.
template <typename V, int N>
void AddSlope(float slope, int64_t first_place, int64_t keys, int64_t key_begin, int64_t count,
              float* scores) {
  using Vec = typename V::Vec;
  float places[N * V::kLanes];
  for (int64_t i = 0; i < N * V::kLanes; ++i) {
    places[i] = static_cast<float>(NearestKey(first_place + i, keys) - key_begin);
  }
  const Vec factor = V::Broadcast(-slope);
  for (int64_t j = 0; j < count; ++j) {
    const Vec key = V::Broadcast(static_cast<float>(j));
    for (int v = 0; v < N; ++v) {
      const Vec distance = V::Load(places + v * V::kLanes) - key;
      const Vec length = V::Max(distance, V::Zero() - distance);
      float* const score = scores + (j * N + v) * V::kLanes;
      V::Store(score, V::MultiplyAdd(factor, length, V::Load(score)));
    }
  }
}

// Adds each key's own bias: `biases` lie `stride` apart.
template <typename V, int N>
void AddKeyBias(const float* biases, int64_t stride, double factor, int64_t count, float* scores) {
  for (int64_t j = 0; j < count; ++j) {
    const double bias = static_cast<double>(biases[j * stride]) * factor;
    const typename V::Vec added = V::Broadcast(static_cast<float>(bias));
    for (int v = 0; v < N; ++v) {
      float* const score = scores + (j * N + v) * V::kLanes;
      V::Store(score, V::Load(score) + added);
    }
  }
}

// A table of biases by key - query, clamped to [-reach, reach], as tiles read it: by query - key,
// and with enough copies of its ends for the lanes of any tile to lie side by side.
template <typename V>
struct PositionTable {
  static constexpr int64_t kMargin = Panels<V>::kMaxWidth;

  static Count Floats(int64_t reach) { return Count(2) * reach + 2 * kMargin; }

  // Fills the entries that Add reads for first lanes at `least` to `most` beyond a key, and no
  // more: a table may be much longer than a sequence. `table` is [2 * reach + 1].
  static void Fill(const float* table, int64_t reach, double factor, int64_t least, int64_t most,
                   float* out) {
    for (int64_t i = At(reach, least); i < At(reach, most) + kMargin; ++i) {
      const int64_t distance = reach + kMargin - i;  // key - query
      const int64_t nearest = distance < -reach ? -reach : (distance > reach ? reach : distance);
      out[i] = static_cast<float>(static_cast<double>(table[nearest + reach]) * factor);
    }
  }

  template <int N>
  static void Add(const float* filled, int64_t reach, int64_t first_place, int64_t key_begin,
                  int64_t count, float* scores) {
    for (int64_t j = 0; j < count; ++j) {
      const float* const bias = filled + At(reach, first_place - (key_begin + j));
      for (int v = 0; v < N; ++v) {
        float* const score = scores + (j * N + v) * V::kLanes;
        V::Store(score, V::Load(score) + V::Load(bias + v * V::kLanes));
      }
    }
  }

 private:
  // Index of the first bias for a vector of lanes whose first lane is `distance` beyond a key.
  // Biases beyond the table's reach are equal.
  static int64_t At(int64_t reach, int64_t distance) {
    if (distance > reach) distance = reach;
    if (distance < -(reach + kMargin)) distance = -(reach + kMargin);
    return reach + kMargin + distance;
  }
};

}  // namespace castor::kernels
