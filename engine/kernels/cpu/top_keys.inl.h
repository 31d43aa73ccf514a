// The keys of the greatest scores, lane by lane, found while the scores are in cache: what improved
// clustered attention refines on. The set is exact, ties go to the lowest key, and nothing
// overflows: each lane has a heap of as many keys as are wanted.
//
// Keys come in spans. The first one is sifted by a threshold that no more than a few of its scores
// pass (below); after it, a score must beat the least that its lane holds. A template over the
// vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace castor::kernels {

template <typename V>
class TopKeys {
 public:
  // A score and its key in one number: the better pair is the greater one.
  using Entry = uint64_t;

  static Entry MakeEntry(float score, int64_t key) {
    const float zero_is_positive = score + 0.0f;
    uint32_t bits;
    std::memcpy(&bits, &zero_is_positive, sizeof(bits));
    bits = (bits & kSign) != 0 ? ~bits : bits | kSign;
    return (uint64_t{bits} << 32) | ~static_cast<uint32_t>(key);
  }
  static int64_t KeyOf(Entry entry) { return static_cast<uint32_t>(~entry); }
  static float ScoreOf(Entry entry) {
    auto bits = static_cast<uint32_t>(entry >> 32);
    bits = (bits & kSign) != 0 ? bits & ~kSign : ~bits;
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
  }

  // Memory for `lanes` lanes, the most wanted keys and the longest span.
  static int64_t ScratchFloats(int64_t lanes, int64_t wanted, int64_t span) {
    return 2 * lanes * wanted + 2 * kLanes * Stride(span) + kMostGroups * kLanes + 2 * lanes + 64;
  }

  // `scratch` is 64-byte aligned.
  TopKeys(float* scratch, int64_t lanes, int64_t wanted, int64_t span) : wanted_(wanted) {
    groups_ = scratch;
    thresholds_ = groups_ + kMostGroups * kLanes;
    sizes_ = reinterpret_cast<int32_t*>(thresholds_ + lanes);
    candidates_ = reinterpret_cast<Entry*>(thresholds_ + (2 * lanes + 15) / 16 * 16);
    heaps_ = candidates_ + kLanes * Stride(span);
    stride_ = Stride(span);
  }

  void Reset(int64_t lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      thresholds_[lane] = -__builtin_inff();
      sizes_[lane] = 0;
    }
  }

  // What a lane holds, in no particular order. Fewer than wanted only where scores are NaN.
  const Entry* entries(int64_t lane) const { return heaps_ + lane * wanted_; }
  int64_t size(int64_t lane) const { return sizes_[lane]; }

  // The first span: keys [0, count). scores [count, width], of which the vector at `lane`; `used`
  // of its lanes count.
  void TakeFirst(const float* scores, int64_t count, int64_t width, int64_t lane, int64_t used) {
    int32_t found[kLanes] = {};
    const Vec least = Threshold(scores, count, width);
    const uint32_t counted = used == kLanes ? ~uint32_t{0} : (uint32_t{1} << used) - 1;
    for (int64_t j = 0; j < count; ++j) {
      const float* row = scores + j * width;
      for (uint32_t hits = V::AtLeast(V::Load(row), least) & counted; hits != 0; hits &= hits - 1) {
        const int i = __builtin_ctz(hits);
        candidates_[i * stride_ + found[i]++] = MakeEntry(row[i], j);
      }
    }
    for (int64_t i = 0; i < used; ++i) {
      Entry* const candidates = candidates_ + i * stride_;
      if (found[i] > wanted_) SelectGreatest(candidates, found[i], wanted_);
      const int64_t size = found[i] < wanted_ ? found[i] : wanted_;
      std::memcpy(heaps_ + (lane + i) * wanted_, candidates, size * sizeof(Entry));
      sizes_[lane + i] = static_cast<int32_t>(size);
    }
  }

  // Before the second span, for the lanes of one vector.
  void MakeHeaps(int64_t lane, int64_t used) {
    for (int64_t i = lane; i < lane + used; ++i) {
      if (sizes_[i] == wanted_) MakeHeap(i);
    }
  }

  // A later span: keys [begin, begin + count). Calls evicted(lane, entry) for what was held and is
  // not any more, and taken(lane) for each lane that holds keys of this span (or did meanwhile).
  template <typename Evicted, typename Taken>
  void Take(const float* scores, int64_t begin, int64_t count, int64_t width, int64_t lane,
            int64_t used, Evicted evicted, Taken taken) {
    const uint32_t counted = used == kLanes ? ~uint32_t{0} : (uint32_t{1} << used) - 1;
    uint32_t any = 0;
    Vec least = V::Load(thresholds_ + lane);
    for (int64_t j = 0; j < count; ++j) {
      const float* row = scores + j * width;
      uint32_t hits = V::Greater(V::Load(row), least) & counted;
      if (hits == 0) continue;
      any |= hits;
      for (; hits != 0; hits &= hits - 1) {
        const int i = __builtin_ctz(hits);
        Insert(lane + i, MakeEntry(row[i], begin + j), evicted);
      }
      least = V::Load(thresholds_ + lane);
    }
    for (; any != 0; any &= any - 1) taken(lane + __builtin_ctz(any));
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr uint32_t kSign = 0x80000000u;
  static constexpr int64_t kMostGroups = 256;

  // Between lanes' candidates: their ends, where entries go, shall not share a set of the cache.
  static int64_t Stride(int64_t span) { return span + 8; }

  // A lower bound of each lane's wanted-th greatest score that few scores reach: of the greatest
  // scores of 2 wanted groups, or so, the wanted-th. With 64 groups of 16 keys, 43 scores reach it
  // where scores are independent. -Inf where groups would be too small, or too many to sort.
  Vec Threshold(const float* scores, int64_t count, int64_t width) {
    const Vec infinite = V::Broadcast(-__builtin_inff());
    int64_t groups = 2;
    while (groups < 2 * wanted_) groups *= 2;
    if (groups > kMostGroups || count < 2 * groups) return infinite;
    for (int64_t g = 0; g < groups; ++g) V::Store(groups_ + g * kLanes, infinite);
    for (int64_t j = 0; j < count; ++j) {
      float* const greatest = groups_ + j % groups * kLanes;
      V::Store(greatest, V::Max(V::Load(scores + j * width), V::Load(greatest)));
    }
    Sort(groups);
    return V::Load(groups_ + (groups - wanted_) * kLanes);
  }

  // Sorts the groups' maxima in each lane, ascending: Batcher's network of merge exchanges (Knuth,
  // volume 3, algorithm 5.2.2 M).
  void Sort(int64_t groups) {
    for (int64_t p = groups / 2; p > 0; p /= 2) {
      int64_t r = 0;
      int64_t d = p;
      for (int64_t q = groups / 2;; q /= 2) {
        for (int64_t i = 0; i < groups - d; ++i) {
          if ((i & p) != r) continue;
          float* const low = groups_ + i * kLanes;
          float* const high = groups_ + (i + d) * kLanes;
          const Vec a = V::Load(low);
          const Vec b = V::Load(high);
          V::Store(low, V::Min(a, b));
          V::Store(high, V::Max(a, b));
        }
        if (q == p) break;
        d = q - p;
        r = p;
      }
    }
  }

  // Moves the `wanted` greatest of the entries to the front. Entries differ, since keys do.
  static void SelectGreatest(Entry* entries, int64_t count, int64_t wanted) {
    int64_t begin = 0;
    int64_t end = count;
    while (end - begin > 1) {
      // The median of three as the pivot, then greater ones to the left of it.
      const Entry a = entries[begin];
      const Entry b = entries[begin + (end - begin) / 2];
      const Entry c = entries[end - 1];
      const Entry low = a < b ? a : b;
      const Entry high = a < b ? b : a;
      const Entry pivot = c < low ? low : (c < high ? c : high);
      int64_t left = begin;
      int64_t right = end - 1;
      while (left <= right) {
        while (entries[left] > pivot) ++left;
        while (entries[right] < pivot) --right;
        if (left > right) break;
        const Entry kept = entries[left];
        entries[left++] = entries[right];
        entries[right--] = kept;
      }
      // [begin, right] >= pivot >= [left, end).
      if (wanted <= right) {
        end = right + 1;
      } else if (wanted >= left) {
        begin = left;
      } else {
        return;
      }
    }
  }

  void SiftDown(Entry* heap, int64_t at) const {
    const Entry entry = heap[at];
    for (int64_t child = 2 * at + 1; child < wanted_; child = 2 * at + 1) {
      if (child + 1 < wanted_ && heap[child + 1] < heap[child]) ++child;
      if (entry < heap[child]) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = entry;
  }

  void MakeHeap(int64_t lane) {
    Entry* const heap = heaps_ + lane * wanted_;
    for (int64_t at = wanted_ / 2 - 1; at >= 0; --at) SiftDown(heap, at);
    thresholds_[lane] = ScoreOf(heap[0]);
  }

  template <typename Evicted>
  void Insert(int64_t lane, Entry entry, Evicted evicted) {
    Entry* const heap = heaps_ + lane * wanted_;
    if (sizes_[lane] < wanted_) {
      heap[sizes_[lane]++] = entry;
      if (sizes_[lane] == wanted_) MakeHeap(lane);
    } else {
      evicted(lane, heap[0]);
      heap[0] = entry;
      SiftDown(heap, 0);
      thresholds_[lane] = ScoreOf(heap[0]);
    }
  }

  const int64_t wanted_;
  float* groups_;      // [kMostGroups, kLanes]
  float* thresholds_;  // [lanes]: the least score of a full heap, else -Inf
  int32_t* sizes_;     // [lanes]
  Entry* candidates_;  // [kLanes, stride]
  int64_t stride_;
  Entry* heaps_;  // [lanes, wanted], the least entry first
};

}  // namespace castor::kernels
