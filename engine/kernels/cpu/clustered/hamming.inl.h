// Lloyd's algorithm in Hamming space on bit-sliced codes: the stages of clusters.h, written once
// over the vectors of simd.h. It uses integers only, so every instruction set gives the same
// labels.
//
// A block has as many codes as a vector has bits. Its plane t is a vector of all codes' bits t. The
// distances to a centroid are the sum of 64 planes (complemented where the centroid has the bit).
// Full adders compute it, and their outputs are planes again: bit 0 of all distances, bit 1, and so
// on. The least distance and its label are kept in planes too. Per 512 distances that is about a
// hundred logical operations with AVX-512, where population counts would take three hundred.
//
// Centroids share the adders' first level: three planes with a centroid's three bits can only give
// eight sums, so a table of them is computed once per block.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clustered/clusters.h"

namespace castor::kernels {

template <typename V>
class Hamming {
 public:
  static void Slice(const CodeClustering& c, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      // Code i of the block goes to bit i / kWords of word i % kWords.
      Bits rows[64];
      if (at + kBlock <= c.count) {
        for (int r = 0; r < 64; ++r) rows[r] = V::LoadBits(c.codes + at + r * kWords);
      } else {
        uint64_t padded[kBlock] = {};
        std::memcpy(padded, c.codes + at, (c.count - at) * sizeof(uint64_t));
        for (int r = 0; r < 64; ++r) rows[r] = V::LoadBits(padded + r * kWords);
      }
      Transpose<32>(rows, 0x00000000ffffffff);
      Transpose<16>(rows, 0x0000ffff0000ffff);
      Transpose<8>(rows, 0x00ff00ff00ff00ff);
      Transpose<4>(rows, 0x0f0f0f0f0f0f0f0f);
      Transpose<2>(rows, 0x3333333333333333);
      Transpose<1>(rows, 0x5555555555555555);
      for (int t = 0; t < 64; ++t) V::StoreBits(c.planes + at + t * kWords, rows[t]);
    }
  }

  static void Pick(const CodeClustering& c) {
    for (int64_t i = 0; i < c.clusters; ++i) Pick(c, i);
  }

  static void Assign(const CodeClustering& c, int64_t begin, int64_t end, bool first) {
    for (int64_t at = begin; at < end; at += kBlock) {
      c.bits <= 63 ? AssignBlock<false>(c, at, first) : AssignBlock<true>(c, at, first);
    }
  }

  static int64_t Move(const CodeClustering& c, int64_t begin, int64_t end, bool first) {
    if (first && begin == 0) {
      std::memset(c.members, 0, c.clusters * sizeof(int32_t));
      std::memset(c.ones, 0, c.clusters * 64 * sizeof(int32_t));
    }
    const int label_bits = c.label_bits();
    int64_t count = 0;
    for (int64_t at = begin; at < end; at += kBlock) {
      const uint64_t* const planes = c.label_planes + at / 64 * label_bits;
      for (int w = 0; w < kWords; ++w) {
        for (uint64_t moved = c.moved[at / 64 + w]; moved != 0; moved &= moved - 1) {
          const int r = __builtin_ctzll(moved);
          const int64_t i = at + r * kWords + w;
          int32_t label = 0;
          for (int k = 0; k < label_bits; ++k) {
            label |= static_cast<int32_t>((planes[k * kWords + w] >> r) & 1) << k;
          }
          if (!first) {
            --c.members[c.labels[i]];
            V::AddBits(c.ones + 64 * int64_t{c.labels[i]}, c.codes[i], -1);
          }
          ++c.members[label];
          V::AddBits(c.ones + 64 * int64_t{label}, c.codes[i], 1);
          c.labels[i] = label;
          ++count;
        }
      }
    }
    return count;
  }

  static bool Update(const CodeClustering& c) {
    bool changed = false;
    for (int64_t i = 0; i < c.clusters; ++i) {
      if (c.members[i] == 0) continue;
      const uint64_t code = V::CountsAbove(c.ones + 64 * i, c.members[i] / 2);
      if (code == c.centroids[i]) continue;
      c.centroids[i] = code;
      Pick(c, i);
      changed = true;
    }
    return changed;
  }

 private:
  using Bits = typename V::Bits;
  static constexpr int64_t kWords = V::kWords;
  static constexpr int64_t kBlock = 64 * kWords;
  static constexpr int kMostLabelBits = 16;

  // A table's entry is the sum of three planes, then its carry.
  static constexpr int64_t kEntry = 2 * kWords;

  // rows[i] bit j becomes rows[j] bit i, in each word, by exchanging ever smaller squares.
  template <int kSide>
  static void Transpose(Bits rows[64], uint64_t low) {
    const Bits mask = V::Repeat(low);
    for (int k = 0; k < 64; k = ((k | kSide) + 1) & ~kSide) {
      const Bits swap = ((rows[k] >> kSide) ^ rows[k | kSide]) & mask;
      rows[k] ^= (swap << kSide);
      rows[k | kSide] ^= swap;
    }
  }

  // The offset of centroid i's entries, in words.
  static void Pick(const CodeClustering& c, int64_t i) {
    for (int64_t g = 0; g < kCodeGroups; ++g) {
      const auto pattern = static_cast<int64_t>((c.centroids[i] >> (3 * g)) & 7);
      c.picks[i * kCodeGroups + g] = static_cast<uint16_t>((g * 8 + pattern) * kEntry);
    }
  }

  // The sums of planes 3 g .. 3 g + 2 for each pattern of a centroid's bits.
  static void MakeTable(const uint64_t* planes, uint64_t* table) {
    for (int64_t g = 0; g < kCodeGroups; ++g) {
      const Bits a = V::LoadBits(planes + (3 * g) * kWords);
      const Bits b = V::LoadBits(planes + (3 * g + 1) * kWords);
      const Bits c = V::LoadBits(planes + (3 * g + 2) * kWords);
      const Bits sum = V::Parity(a, b, c);
      const Bits not_sum = ~sum;
      for (int pattern = 0; pattern < 4; ++pattern) {
        const Bits carry = V::Majority((pattern & 1) != 0 ? ~a : a, (pattern & 2) != 0 ? ~b : b, c);
        const bool odd = pattern == 1 || pattern == 2;
        uint64_t* const entry = table + (g * 8 + pattern) * kEntry;
        uint64_t* const opposite = table + (g * 8 + 7 - pattern) * kEntry;
        V::StoreBits(entry, odd ? not_sum : sum);
        V::StoreBits(entry + kWords, carry);
        V::StoreBits(opposite, odd ? sum : not_sum);
        V::StoreBits(opposite + kWords, ~carry);
      }
    }
  }

  // Three planes of one weight become one of that weight and one of twice it.
  [[gnu::always_inline]] static void Add(Bits& sum, Bits a, Bits b, Bits& carry) {
    const Bits before = sum;
    sum = V::Parity(before, a, b);
    carry = V::Majority(before, a, b);
  }

  // Adds four groups of three planes to ones and twos; the carries are three planes of fours.
  [[gnu::always_inline]] static void AddGroups(const uint64_t* table, const uint16_t* pick,
                                               Bits& ones, Bits& twos, Bits fours[3]) {
    Bits sum[4];
    Bits carry[4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      sum[g] = V::LoadBits(table + pick[g]);
      carry[g] = V::LoadBits(table + pick[g] + kWords);
    }
    Bits two[2];
    Add(ones, sum[0], sum[1], two[0]);
    Add(ones, sum[2], sum[3], two[1]);
    Add(twos, carry[0], carry[1], fours[0]);
    Add(twos, carry[2], carry[3], fours[1]);
    Add(twos, two[0], two[1], fours[2]);
  }

  // The distances to one centroid, of all bits that groups hold: plane k of the result is bit k.
  [[gnu::always_inline]] static void Distances(const uint64_t* table, const uint16_t* pick,
                                               Bits distance[6]) {
    Bits ones = V::LoadBits(table + pick[0]);
    Bits twos = V::LoadBits(table + pick[0] + kWords);
    Bits f[3];
    Bits e[4];
    Bits x[2];
    AddGroups(table, pick + 1, ones, twos, f);
    Bits fours = f[0];
    Add(fours, f[1], f[2], e[0]);
    Bits eights = e[0];
    Bits sixteens = V::Repeat(0);
    Bits thirty_twos = V::Repeat(0);
    AddGroups(table, pick + 5, ones, twos, f);
    Bits left = f[2];
    Add(fours, f[0], f[1], e[1]);
    AddGroups(table, pick + 9, ones, twos, f);
    Add(fours, left, f[0], e[2]);
    Add(fours, f[1], f[2], e[3]);
    Add(eights, e[1], e[2], sixteens);
    AddGroups(table, pick + 13, ones, twos, f);
    left = f[2];
    Add(fours, f[0], f[1], e[0]);
    Add(eights, e[3], e[0], x[0]);
    AddGroups(table, pick + 17, ones, twos, f);
    Add(fours, left, f[0], e[1]);
    Add(fours, f[1], f[2], e[2]);
    Add(eights, e[1], e[2], x[1]);
    Add(sixteens, x[0], x[1], thirty_twos);
    distance[0] = ones;
    distance[1] = twos;
    distance[2] = fours;
    distance[3] = eights;
    distance[4] = sixteens;
    distance[5] = thirty_twos;
  }

  // kBit63: codes have a bit that no group holds.
  template <bool kBit63>
  static void AssignBlock(const CodeClustering& c, int64_t at, bool first) {
    constexpr int kDistanceBits = kBit63 ? 7 : 6;
    alignas(64) uint64_t table[kCodeGroups * 8 * kEntry];
    const uint64_t* const planes = c.planes + at;
    MakeTable(planes, table);

    const auto distances = [&](int64_t i, Bits out[kDistanceBits]) {
      Distances(table, c.picks + i * kCodeGroups, out);
      if constexpr (kBit63) {
        Bits carry =
            V::LoadBits(planes + 63 * kWords) ^ V::Repeat(uint64_t{0} - (c.centroids[i] >> 63));
        for (int k = 0; k < 6; ++k) {
          const Bits before = out[k];
          out[k] = before ^ carry;
          carry = before & carry;
        }
        out[6] = carry;
      }
    };

    const int label_bits = c.label_bits();
    const Bits constant[2] = {V::Repeat(0), V::Repeat(~uint64_t{0})};
    Bits label[kMostLabelBits];
    for (int k = 0; k < label_bits; ++k) label[k] = constant[0];
    Bits least[kDistanceBits];
    distances(0, least);
    for (int64_t i = 1; i < c.clusters; ++i) {
      Bits distance[kDistanceBits];
      distances(i, distance);
      Bits less = constant[0];
      for (int k = 0; k < kDistanceBits; ++k) less = V::Borrow(distance[k], least[k], less);
      for (int k = 0; k < kDistanceBits; ++k) least[k] = V::Select(less, distance[k], least[k]);
      for (int k = 0; k < label_bits; ++k) {
        label[k] = V::Select(less, constant[(i >> k) & 1], label[k]);
      }
    }

    uint64_t* const labels = c.label_planes + at / 64 * label_bits;
    Bits moved = constant[first ? 1 : 0];
    for (int k = 0; k < label_bits; ++k) {
      if (!first) moved = moved | (label[k] ^ V::LoadBits(labels + k * kWords));
      V::StoreBits(labels + k * kWords, label[k]);
    }
    V::StoreBits(c.moved + at / 64, moved);
    for (int64_t w = 0; at + kBlock > c.count && w < kWords; ++w) {
      // Rows of a word that hold codes: i = r kWords + w < count - at.
      const int64_t rows = (c.count - at - w + kWords - 1) / kWords;
      if (rows < 64) c.moved[at / 64 + w] &= rows <= 0 ? 0 : (uint64_t{1} << rows) - 1;
    }
  }
};

}  // namespace castor::kernels
