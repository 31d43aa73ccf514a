// The kernel of linear.h, written once over the vectors of simd.h and the steps of
// linear_steps.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/linear/activation.inl.h"
#include "engine/kernels/cpu/linear/linear.h"
#include "engine/kernels/cpu/linear/linear_steps.inl.h"

namespace castor::kernels {

template <typename V, typename Steps>
class Linear {
 public:
  static constexpr int64_t kVectors = 2;  // in a panel
  static constexpr int64_t kWidth = kVectors * V::kLanes;
  static constexpr int64_t kVectorWords = Steps::kWords * V::kLanes;  // of a step
  static constexpr int64_t kStepWords = kVectors * kVectorWords;
  static constexpr int kTileRows = Steps::kTileRows;

  static constexpr int64_t StepsOf(int64_t in) {
    return (in + Steps::kInputs - 1) / Steps::kInputs;
  }

  static int64_t PackedWords(int64_t in, int64_t out) {
    return (out + kWidth - 1) / kWidth * kStepWords * StepsOf(in);
  }

  // A panel is [steps, kVectors, words, lanes]; outputs and inputs that do not exist have weights
  // of zero.
  static void Pack(const void* weights, int64_t in, int64_t out, uint32_t* panels) {
    const auto* bytes = static_cast<const char*>(weights);
    const int64_t row_bytes = in * 4 * Steps::kWords / Steps::kInputs;
    const int64_t steps = StepsOf(in);
    const int64_t outputs = (out + kWidth - 1) / kWidth * kWidth;
    // Vectors of outputs side by side are a step's, the words of one lie together.
    for (int64_t first = 0; first < outputs; first += V::kLanes) {
      uint32_t* const vector =
          panels + first / kWidth * kStepWords * steps + first % kWidth * Steps::kWords;
      for (int64_t word = 0; word < steps * Steps::kWords; ++word) {
        uint32_t* const to =
            vector + word / Steps::kWords * kStepWords + word % Steps::kWords * V::kLanes;
        const int64_t left = row_bytes - word * 4;
        for (int64_t lane = 0; lane < V::kLanes; ++lane) {
          to[lane] = 0;
          if (first + lane >= out || left <= 0) continue;
          std::memcpy(to + lane, bytes + (first + lane) * row_bytes + word * 4,
                      left < 4 ? left : 4);
        }
      }
    }
  }

  static void Run(const PackedMatrix& matrix, const LinearRows& rows, Activation activation,
                  int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
    const int64_t steps = StepsOf(matrix.in);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const uint32_t* const weights = matrix.panels + panel * kStepWords * steps;
      for (int64_t row = row_begin; row < row_end; row += kTileRows) {
        const int64_t count = row_end - row < kTileRows ? row_end - row : kTileRows;
        alignas(64) uint32_t sums[kTileRows * kWidth];
        const auto* const tiles = row == row_begin ? kFirstTiles.run : kTiles.run;
        tiles[count](static_cast<const Bits*>(rows.x) + row * rows.x_stride, rows.x_stride, weights,
                     steps, sums);
        Finish(matrix, rows, activation, row, count, panel * kWidth, sums);
      }
    }
  }

 private:
  using Vec = typename V::Vec;
  using Sum = typename Steps::Sum;
  using Operand = typename Steps::Operand;
  using Bits = typename Steps::Row::Bits;
  using Output = typename Steps::Output;

  // Words by which weights are fetched before their use. With few rows a product waits for weights
  // from memory, and the processor's own prefetcher fetches at most 60 % of them.
  static constexpr int64_t kAhead = 2048;

  // R rows by a panel, over all inputs: sums [R, kWidth]. The first tile fetches weights, the
  // others find them in a cache, where what is fetched for later would take the place of rows.
  template <int R, bool kFirst>
  static void Tile(const Bits* __restrict x, int64_t stride, const uint32_t* __restrict weights,
                   int64_t steps, uint32_t* __restrict sums) {
    Sum sum[R][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Steps::Zero();
    }
    const auto add = [&](int64_t s) __attribute__((always_inline)) {
      const uint32_t* const step = weights + s * kStepWords;
#pragma GCC unroll 16
      for (int64_t word = 0; word < kStepWords; word += V::kLanes) {
        if constexpr (kFirst) __builtin_prefetch(step + word + kAhead, 0, 3);
      }
#pragma GCC unroll 16
      for (int part = 0; part < Steps::kParts; ++part) {
        // Inputs of a later part, fetched early, would leave no registers for the sums.
        if (part > 0) asm volatile("" ::: "memory");
        Operand weight[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
          weight[v] = Steps::Weights(step + v * kVectorWords, part);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Operand inputs = Steps::Broadcast(x + r * stride + s * Steps::kInputs + part);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) Steps::MultiplyAdd(inputs, weight[v], sum[r][v]);
        }
      }
    };
    if constexpr (Steps::kUnrolled == 1) {
#pragma GCC unroll 1
      for (int64_t s = 0; s < steps; ++s) add(s);
    } else {
#pragma GCC unroll 2
      for (int64_t s = 0; s < steps; ++s) add(s);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v)
        Steps::Store(sums + (r * kVectors + v) * V::kLanes, sum[r][v]);
    }
  }

  // Writes a tile's outputs, those from column `first` on.
  static void Finish(const PackedMatrix& matrix, const LinearRows& rows, Activation activation,
                     int64_t row, int64_t count, int64_t first, const uint32_t* sums) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t column = first + v * V::kLanes;
      if (column >= matrix.out) return;
      const int64_t width = matrix.out - column < V::kLanes ? matrix.out - column : V::kLanes;
      const Vec bias = matrix.bias == nullptr
                           ? V::Zero()
                           : Elements<V, Float32>::Load(matrix.bias + column, width);
      const typename Steps::Columns columns(matrix, column);
      for (int64_t r = 0; r < count; ++r) {
        auto* const y =
            static_cast<typename Output::Bits*>(rows.y) + (row + r) * rows.y_stride + column;
        Vec sum =
            Steps::Value(sums + (r * kVectors + v) * V::kLanes, columns, rows, row + r) + bias;
        if (rows.add) sum = sum + Elements<V, Output>::Load(y, width);
        Elements<V, Output>::Store(y, Activations<V>::Apply(activation, sum), width);
      }
    }
  }

  // The tiles by their number of rows.
  template <bool kFirst>
  struct Tiles {
    void (*run[kTileRows + 1])(const Bits*, int64_t, const uint32_t*, int64_t, uint32_t*) = {};
    constexpr Tiles() { Fill<kTileRows>(); }
    template <int R>
    constexpr void Fill() {
      run[R] = &Tile<R, kFirst>;
      if constexpr (R > 1) Fill<R - 1>();
    }
  };
  static constexpr Tiles<true> kFirstTiles{};
  static constexpr Tiles<false> kTiles{};
};

template <typename V, typename Steps>
constexpr LinearKernel MakeLinearKernel(const char* backend, bool (*runs_here)(),
                                        bool (*pays)() = nullptr) {
  using L = Linear<V, Steps>;
  LinearKernel kernel = {.backend = backend,
                         .type = Steps::kType,
                         .runs_here = runs_here,
                         .pays = pays,
                         .panel_width = L::kWidth,
                         .tile_rows = L::kTileRows,
                         .packs = &Steps::Packs,
                         .packed_words = &L::PackedWords,
                         .pack = &L::Pack,
                         .run = &L::Run,
                         .prepare = nullptr,
                         .prepared_elements = nullptr,
                         .prepared_size = 0,
                         .most_input = 0,
                         .excess = nullptr};
  if constexpr (requires { &Steps::Prepare; }) {
    kernel.prepare = &Steps::Prepare;
    kernel.prepared_elements = +[](int64_t in) { return L::StepsOf(in) * Steps::kInputs; };
    kernel.prepared_size = sizeof(typename Steps::Row::Bits);
  }
  if constexpr (Steps::kType == LinearType::kInt8) {
    kernel.most_input = Steps::kMostInput;
    kernel.excess = Steps::kExcess;
  }
  return kernel;
}

}  // namespace castor::kernels
