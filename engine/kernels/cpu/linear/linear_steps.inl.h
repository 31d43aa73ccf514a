// The steps of a product through its inputs: a step is one word of 32 bits or more of an output's
// weights, and the inputs that they meet, in one part or in several, one after another.
// Everything is a template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/linear/linear.h"
#include "engine/kernels/cpu/rows.inl.h"

namespace castor::kernels {

// The base of the steps of floats.
template <typename V, typename Element>
struct FloatSteps {
  using Row = Element;
  using Output = Element;
  using Vec = typename V::Vec;
  using Sum = Vec;
  using Operand = Vec;
  static constexpr int kTileRows = V::kRows[2];
  static constexpr int kWords = 1;
  static constexpr int kParts = 1;
  static constexpr int kUnrolled = 2;
  struct Columns {
    Columns(const PackedMatrix&, int64_t) {}
  };

  static Sum Zero() { return V::Zero(); }
  static Vec Load(const uint32_t* p) { return V::Load(reinterpret_cast<const float*>(p)); }
  static Vec Weights(const uint32_t* p, int) { return Load(p); }
  static Vec Broadcast(const void* p) {
    float bits;
    std::memcpy(&bits, p, sizeof(bits));
    return V::Broadcast(bits);
  }
  static void Store(uint32_t* p, Sum sum) { V::Store(reinterpret_cast<float*>(p), sum); }
  static Vec Value(const uint32_t* sum, const Columns&, const LinearRows&, int64_t) {
    return Load(sum);
  }
};

// One float.
template <typename V>
struct Float32Steps : FloatSteps<V, Float32> {
  using Vec = typename V::Vec;
  static constexpr LinearType kType = LinearType::kFloat32;
  static constexpr int64_t kInputs = 1;

  static bool Packs(int64_t) { return true; }
  static void MultiplyAdd(Vec x, Vec w, Vec& sum) { sum = V::MultiplyAdd(x, w, sum); }
};

// Two bfloat16, for an instruction that multiplies both: a row's are broadcast as they come.
template <typename V>
struct BFloat16Steps : FloatSteps<V, BFloat16> {
  static constexpr LinearType kType = LinearType::kBFloat16;
  static constexpr int64_t kInputs = 2;

  static bool Packs(int64_t in) { return in % 2 == 0; }
};

// Two bfloat16 for products of float32, in which theirs are exact: the even input first. Rows come
// widened, so that a step has only its weights to widen, once for all rows of a tile.
template <typename V>
struct WidenedSteps : BFloat16Steps<V> {
  using Row = Float32;
  using Vec = typename V::Vec;
  static constexpr int kParts = 2;

  static Vec Weights(const uint32_t* p, int part) {
    const Vec both = WidenedSteps::Load(p);
    return part == 0 ? V::LowBFloat16s(both) : V::HighBFloat16s(both);
  }
  static void MultiplyAdd(Vec x, Vec w, Vec& sum) { sum = V::MultiplyAdd(x, w, sum); }

  static RowScale Prepare(const void* x, int64_t in, void* prepared) {
    LoadRow<V, BFloat16>(static_cast<const uint16_t*>(x), in, static_cast<float*>(prepared));
    return {};
  }
};

// Inputs of eight bits or fewer, four to a word. I has what floats do not: the instruction set's
// integers, and which inputs and weights its products are exact for.
template <typename V, typename I>
struct Int8Steps {
  struct Row {
    using Bits = uint8_t;
  };
  using Output = Float32;
  using Vec = typename V::Vec;
  using Sum = typename I::Vec;
  struct Operand {
    Sum words[I::kWords];
  };
  static constexpr LinearType kType = LinearType::kInt8;
  static constexpr int kWords = I::kWords;
  static constexpr int64_t kInputs = 4 * kWords;
  static constexpr int kParts = 1;
  static constexpr int kUnrolled = 2;
  static constexpr auto kExcess = I::kExcess;
  static constexpr int32_t kMostInput = I::kMostInput;
  static constexpr int kTileRows = I::kTileRows;

  struct Columns {
    Columns(const PackedMatrix& matrix, int64_t column)
        : scales(V::Load(matrix.scales + column)), sums(I::Load(matrix.sums + column)) {}
    Vec scales;
    Sum sums;
  };

  static bool Packs(int64_t in) { return in <= (int64_t{1} << 31) / (kMostInput * 127) - 4; }
  static Sum Zero() { return I::Broadcast(0); }
  static Operand Weights(const uint32_t* p, int) {
    Operand weights;
    for (int word = 0; word < kWords; ++word) {
      weights.words[word] = I::Load(p + word * V::kLanes);
    }
    return weights;
  }
  static Operand Broadcast(const uint8_t* p) {
    Operand inputs;
    for (int word = 0; word < kWords; ++word) {
      int32_t bits;
      std::memcpy(&bits, p + 4 * word, sizeof(bits));
      inputs.words[word] = I::Broadcast(bits);
    }
    return inputs;
  }
  static void MultiplyAdd(const Operand& x, const Operand& w, Sum& sum) {
    I::MultiplyAddBytes(x.words, w.words, sum);
  }
  static void Store(uint32_t* p, Sum sum) { I::Store(p, sum); }
  static Vec Value(const uint32_t* sum, const Columns& columns, const LinearRows& rows,
                   int64_t row) {
    const RowScale& x = rows.x_scales[row];
    const Sum centred = I::Subtract(I::Load(sum), I::Multiply(I::Broadcast(x.zero), columns.sums));
    return I::ToFloat(centred) * (columns.scales * V::Broadcast(x.scale));
  }

  // 0 is always among the values, so that zeros stay exact.
  static RowScale Prepare(const void* row, int64_t in, void* prepared) {
    const auto* const x = static_cast<const float*>(row);
    auto* const quantized = static_cast<uint8_t*>(prepared);
    Vec least = V::Zero(), most = V::Zero();  // of -x, of x
    ForColumns<V>(in, [&](int64_t e, int64_t count) {
      const Vec at = Elements<V, Float32>::Load(x + e, count);
      most = V::Max(at, most);
      least = V::Max(V::Zero() - at, least);
    });
    const float low = -V::Greatest(least), high = V::Greatest(most);
    const float range = high - low;
    if (!(range > 0)) {
      for (int64_t e = 0; e < in || e % kInputs != 0; ++e) quantized[e] = 0;
      return {.scale = 1, .zero = 0};
    }
    const float scale = range / kMostInput;
    const int32_t zero = static_cast<int32_t>(__builtin_rintf(-low / scale));
    const Vec inverse = V::Broadcast(1 / scale);
    const Vec offset = V::Broadcast(static_cast<float>(zero));
    // Four vectors at a time: their bytes fill one.
    constexpr int64_t kAtOnce = 4 * V::kLanes;
    for (int64_t e = 0; e < in; e += kAtOnce) {
      const int64_t count = in - e < kAtOnce ? in - e : kAtOnce;
      Vec at[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
      ForColumns<V>(count, [&](int64_t i, int64_t width) {
        const Vec value = Elements<V, Float32>::Load(x + e + i, width);
        at[i / V::kLanes] = V::Max(V::MultiplyAdd(value, inverse, offset), V::Zero());
      });
      if (count == kAtOnce) {
        I::StoreBytes(quantized + e, at);
        continue;
      }
      alignas(64) uint8_t bytes[kAtOnce];
      I::StoreBytes(bytes, at);
      std::memcpy(quantized + e, bytes, static_cast<size_t>(count));
    }
    for (int64_t e = in; e % kInputs != 0; ++e) quantized[e] = 0;
    return {.scale = scale, .zero = zero};
  }
};

}  // namespace castor::kernels
