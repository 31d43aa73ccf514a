// The vectors of simd_portable.h with the additions that clustering needs, see bits_avx512.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/simd_portable.h"

namespace castor::kernels {

struct PortableBits : Portable {
  static Vec Min(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static uint32_t Greater(Vec a, Vec b) {
    uint32_t mask = 0;
    for (int i = 0; i < kLanes; ++i) mask |= uint32_t{a.lane[i] > b.lane[i]} << i;
    return mask;
  }
  static uint32_t AtLeast(Vec a, Vec b) {
    uint32_t mask = 0;
    for (int i = 0; i < kLanes; ++i) mask |= uint32_t{a.lane[i] >= b.lane[i]} << i;
    return mask;
  }
  static Vec IfGreater(Vec a, Vec b, Vec x, Vec y) {
    return Make([&](int i) { return a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i]; });
  }

  static constexpr int kWords = 2;
  struct Bits {
    uint64_t word[kWords];
  };

  template <typename F>
  static Bits MakeBits(F f) {
    Bits out;
    for (int i = 0; i < kWords; ++i) out.word[i] = f(i);
    return out;
  }

  static Bits LoadBits(const uint64_t* p) {
    return MakeBits([&](int i) { return p[i]; });
  }
  static void StoreBits(uint64_t* p, Bits x) {
    for (int i = 0; i < kWords; ++i) p[i] = x.word[i];
  }
  static Bits Repeat(uint64_t word) {
    return MakeBits([&](int) { return word; });
  }
  static Bits And(Bits a, Bits b) {
    return MakeBits([&](int i) { return a.word[i] & b.word[i]; });
  }
  static Bits Or(Bits a, Bits b) {
    return MakeBits([&](int i) { return a.word[i] | b.word[i]; });
  }
  static Bits Xor(Bits a, Bits b) {
    return MakeBits([&](int i) { return a.word[i] ^ b.word[i]; });
  }
  static Bits Not(Bits a) {
    return MakeBits([&](int i) { return ~a.word[i]; });
  }
  template <int kCount>
  static Bits ShiftLeft(Bits a) {
    return MakeBits([&](int i) { return a.word[i] << kCount; });
  }
  template <int kCount>
  static Bits ShiftRight(Bits a) {
    return MakeBits([&](int i) { return a.word[i] >> kCount; });
  }
  static Bits Parity(Bits a, Bits b, Bits c) { return Xor(Xor(a, b), c); }
  static Bits Majority(Bits a, Bits b, Bits c) { return Or(And(a, b), And(Xor(a, b), c)); }
  static Bits Borrow(Bits a, Bits b, Bits borrow) { return Majority(Not(a), b, borrow); }
  static Bits Select(Bits which, Bits a, Bits b) { return Xor(b, And(which, Xor(a, b))); }

  static void AddBits(int32_t* counts, uint64_t code, int32_t amount) {
    for (int t = 0; t < 64; ++t) counts[t] += amount & -static_cast<int32_t>((code >> t) & 1);
  }
  static uint64_t CountsAbove(const int32_t* counts, int32_t least) {
    uint64_t code = 0;
    for (int t = 0; t < 64; ++t) code |= uint64_t{counts[t] > least} << t;
    return code;
  }
};

}  // namespace castor::kernels
