// The keys of the greatest scores, lane by lane, found while the scores are in cache. Improved
// clustered attention refines rows on them. The set is exact, ties go to the lowest key, and
// nothing can overflow: each lane has a heap with room for all wanted keys.
//
// Keys come in spans. The first one is filtered by a threshold that only a few of its scores pass
// (below). After it, a score must beat the least in its lane's heap. A template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/softmax.inl.h"

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
    return 2 * lanes * wanted + 2 * kLanes * Stride(span) + 2 * span + kMostSlots * kLanes +
           2 * lanes + 64;
  }

  // `scratch` is 64-byte aligned, or nullptr for an object that is not used. A `tight` one filters
  // first spans down to one key and a half for each group, others down to two: the keys are the
  // same, their order may not be.
  TopKeys(float* scratch, int64_t lanes, int64_t wanted, int64_t span, bool tight)
      : wanted_(wanted), tight_(tight) {
    if (scratch == nullptr) return;
    slots_ = scratch;
    thresholds_ = slots_ + kMostSlots * kLanes;
    sizes_ = reinterpret_cast<int32_t*>(thresholds_ + lanes);
    candidates_ = reinterpret_cast<Entry*>(thresholds_ + (2 * lanes + 15) / 16 * 16);
    heaps_ = candidates_ + kLanes * Stride(span);
    stride_ = Stride(span);
    hits_ = reinterpret_cast<Hits*>(heaps_ + lanes * wanted);
  }

  void Reset(int64_t lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      thresholds_[lane] = -__builtin_inff();
      sizes_[lane] = 0;
    }
  }

  // A lane's keys, in no particular order. Fewer than wanted only if scores are NaN or -Inf.
  const Entry* entries(int64_t lane) const { return heaps_ + lane * wanted_; }
  int64_t size(int64_t lane) const { return sizes_[lane]; }

  // Adds the first span, keys [0, count), from the vector at `lane` of scores [count, width]. Only
  // the first `used` lanes of the vector count.
  void AddFirstKeys(const float* scores, int64_t count, int64_t width, int64_t lane, int64_t used) {
    const int64_t slots = Slots(count);
    const Vec infinite = V::Broadcast(-__builtin_inff());
    const Vec bound = slots == 0 ? infinite : Threshold(scores, count, width, slots);
    const Vec least = V::Max(bound, V::Broadcast(-kLargestFloat));  // hidden keys are no candidates
    for (int64_t s = 0; s < slots; ++s) V::Store(slots_ + s * kLanes, infinite);

    // First the rows that have candidates, then the candidates: two loops with predictable
    // branches.
    const uint32_t counted = used == kLanes ? ~uint32_t{0} : (uint32_t{1} << used) - 1;
    int64_t hit_rows = 0;
    for (int64_t j = 0; j < count; ++j) {
      const uint32_t hits = V::AtLeast(V::Load(scores + j * width), least) & counted;
      hits_[hit_rows] = {static_cast<int32_t>(j), hits};
      hit_rows += hits != 0;
    }
    int32_t found[kLanes] = {};
    for (int64_t n = 0; n < hit_rows; ++n) {
      const int64_t j = hits_[n].key;
      const float* row = scores + j * width;
      for (uint32_t hits = hits_[n].lanes; hits != 0; hits &= hits - 1) {
        const int i = __builtin_ctz(hits);
        const int64_t slot = found[i]++;
        candidates_[i * stride_ + slot] = MakeEntry(row[i], j);
        if (slot < slots) slots_[slot * kLanes + i] = row[i];
      }
    }

    // One sort finds the last wanted score of every lane if slots hold all candidates' scores.
    if (slots != 0) Sort(slots);
    for (int64_t i = 0; i < used; ++i) {
      Entry* const candidates = candidates_ + i * stride_;
      if (found[i] > slots) {
        if (found[i] > wanted_) SelectGreatest(candidates, found[i], wanted_);
      } else if (found[i] > wanted_) {
        KeepFrom(candidates, found[i], slots_[(slots - wanted_) * kLanes + i]);
      }
      const int64_t size = found[i] < wanted_ ? found[i] : wanted_;
      std::memcpy(heaps_ + (lane + i) * wanted_, candidates, size * sizeof(Entry));
      sizes_[lane + i] = static_cast<int32_t>(size);
    }
  }

  // Turns the full lists of one vector's lanes into heaps, which the second span of keys needs.
  void MakeHeaps(int64_t lane, int64_t used) {
    for (int64_t i = lane; i < lane + used; ++i) {
      if (sizes_[i] == wanted_) MakeHeap(i);
    }
  }

  // Adds a later span, keys [begin, begin + count). Calls evicted(lane, entry) for each entry that
  // drops out, and taken(lane) for each lane that holds keys of this span or did for a while.
  template <typename Evicted, typename Taken>
  void AddKeys(const float* scores, int64_t begin, int64_t count, int64_t width, int64_t lane,
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
  static constexpr int64_t kMostSlots = 256;

  // A key's row and the lanes for which it is a candidate.
  struct Hits {
    int32_t key;
    uint32_t lanes;
  };

  // The stride between lanes' candidates: the ends, where entries are appended, must not map to the
  // same cache set.
  static int64_t Stride(int64_t span) { return span + 8; }

  // The number of groups into which Threshold divides a span: about two for each wanted key. None
  // if groups would be too small, or too many to sort.
  int64_t Slots(int64_t count) const {
    int64_t slots = 2;
    while (slots < 2 * wanted_) slots *= 2;
    const int64_t least = tight_ ? slots + slots / 2 : 2 * slots;
    return slots > kMostSlots || count < least ? 0 : slots;
  }

  // A lower bound of each lane's wanted-th greatest score that few scores reach: the wanted-th of
  // the groups' greatest scores. With 64 groups of 16 keys and 32 wanted keys, 43 independent
  // scores reach it on average.
  Vec Threshold(const float* scores, int64_t count, int64_t width, int64_t groups) {
    for (int64_t g = 0; g < groups; ++g) V::Store(slots_ + g * kLanes, V::Load(scores + g * width));
    for (int64_t j = groups; j < count; ++j) {
      float* const greatest = slots_ + (j & (groups - 1)) * kLanes;
      V::Store(greatest, V::Max(V::Load(scores + j * width), V::Load(greatest)));
    }
    Sort(groups);
    return V::Load(slots_ + (groups - wanted_) * kLanes);
  }

  // Sorts the first `count` slots, a power of two, in each lane, ascending: Batcher's network of
  // merge exchanges (Knuth, volume 3, algorithm 5.2.2 M).
  void Sort(int64_t count) {
    for (int64_t p = count / 2; p > 0; p /= 2) {
      int64_t r = 0;
      int64_t d = p;
      for (int64_t q = count / 2;; q /= 2) {
        // All i < count - d with (i & p) == r.
        for (int64_t first = r; first < count - d; first += 2 * p) {
          const int64_t end = first + p < count - d ? first + p : count - d;
          for (int64_t i = first; i < end; ++i) {
            const Vec a = V::Load(slots_ + i * kLanes);
            const Vec b = V::Load(slots_ + (i + d) * kLanes);
            V::Store(slots_ + i * kLanes, V::Min(a, b));
            V::Store(slots_ + (i + d) * kLanes, V::Max(a, b));
          }
        }
        if (q == p) break;
        d = q - p;
        r = p;
      }
    }
  }

  // Moves the wanted greatest entries to the front, given the score of the last of them. They come
  // in the order of their keys, so the first ones win ties.
  void KeepFrom(Entry* entries, int64_t count, float last) const {
    const uint64_t least = MakeEntry(last, 0) >> 32;
    int64_t ties = wanted_;
    for (int64_t n = 0; n < count; ++n) ties -= (entries[n] >> 32) > least;
    int64_t kept = 0;
    for (int64_t n = 0; n < count; ++n) {
      const Entry entry = entries[n];
      const bool tie = (entry >> 32) == least;
      const bool keep = (entry >> 32) > least || (tie && ties > 0);
      ties -= tie;
      entries[kept] = entry;
      kept += keep;
    }
  }

  // Moves the `wanted` greatest of the entries to the front. No two entries are equal, since keys
  // differ.
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
  const bool tight_;
  float* slots_ = nullptr;       // [kMostSlots, kLanes]
  float* thresholds_ = nullptr;  // [lanes]: the least score of a full heap, else -Inf
  int32_t* sizes_ = nullptr;     // [lanes]
  Entry* candidates_ = nullptr;  // [kLanes, stride]
  int64_t stride_ = 0;
  Entry* heaps_ = nullptr;  // [lanes, wanted], after MakeHeaps the least entry first
  Hits* hits_ = nullptr;    // [span]
};

}  // namespace castor::kernels
