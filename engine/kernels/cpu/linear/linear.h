// Products of rows with a matrix that is used again and again: y = activation(x W^T + bias), as
// linear layers have it.
//
// The matrix is packed once: into panels of neighbouring outputs, in the order in which the product
// reads them. Lanes hold outputs, so a row's elements are only broadcast. Arithmetic is float32:
// products of bfloat16 are exact, except that the processor's own instruction for them takes
// subnormals for zeros. That of int8 is exact in 32 bits, until scales make it float32: a weight is
// scale[output] w, with w in [-127, 127], an input is scale[row] (x - zero[row]), with x in
// [0, 255], or in [0, 127] where the instruction set's products of bytes hold no more.
//
// An output depends on its row and its column of the matrix alone: its sum runs over the inputs in
// order, in any tile, lane or thread.
//
// Only for vectors of eight floats and more: elsewhere the tensor library's products are faster.
// This folder knows neither the tensor library nor absl. Functions are re-entrant.
#pragma once

#include <array>
#include <cstdint>

namespace castor::kernels {

// The activation functions of encoders' MLPs.
enum class Activation {
  kNone,
  kGeluErf,    // x Phi(x)
  kGeluTanh,   // its approximation by tanh
  kQuickGelu,  // x sigmoid(1.702 x)
  kRelu,
  kSilu,  // x sigmoid(x)
  kTanh,
};

// The types of W, x and y: all three are the same, but for int8, whose y is float32.
enum class LinearType { kFloat32, kBFloat16, kInt8 };

// The scale and zero of a row of int8.
struct RowScale {
  float scale;
  int32_t zero;
};

// Outputs by inputs, as packed by the kernel that reads it. Arrays for int8 have an element for
// each output of all panels, also those that are only padding.
struct PackedMatrix {
  int64_t in = 0;
  int64_t out = 0;
  const uint32_t* panels = nullptr;  // 64-byte aligned, LinearKernel::packed_words of them
  const float* bias = nullptr;       // [out], or null
  const float* scales = nullptr;     // int8: of the outputs
  const int32_t* sums = nullptr;     // int8: of each output's weights
};

// Rows of both sides. Strides count elements from one row to the next; a row's are contiguous.
struct LinearRows {
  const void* x = nullptr;  // [rows, in], prepared where the kernel asks for it
  int64_t x_stride = 0;
  const RowScale* x_scales = nullptr;  // int8: [rows]
  void* y = nullptr;                   // [rows, out]; not x
  int64_t y_stride = 0;
  bool add = false;  // y = activation(y + x W^T + bias)
};

// One instruction set's implementation for one type.
struct LinearKernel {
  const char* backend;  // "cpu-avx512"
  LinearType type;
  bool (*runs_here)();  // whether this processor has the instructions
  bool (*pays)();       // false: the next best kernel is faster; null: always true

  int64_t panel_width;  // outputs in a panel
  int64_t tile_rows;    // rows that a panel is read for at a time: calls should have a multiple

  // Whether `in` can be packed: bfloat16 takes two at a time, and sums of int8 must not overflow.
  bool (*packs)(int64_t in);

  // 32-bit words of a packed matrix.
  int64_t (*packed_words)(int64_t in, int64_t out);

  // Packs W [out, in], contiguous.
  void (*pack)(const void* weights, int64_t in, int64_t out, uint32_t* panels);

  // Computes rows [row_begin, row_end) of the outputs in panels [panel_begin, panel_end).
  void (*run)(const PackedMatrix& matrix, const LinearRows& rows, Activation activation,
              int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end);

  // Turns a row into what `run` reads, once for all panels: float32 into the bytes that serve the
  // row best, none above `most_input`; bfloat16 into float32 where products are of float32 anyway.
  // Null where `run` reads rows as they come. The result is for int8.
  RowScale (*prepare)(const void* x, int64_t in, void* prepared);
  int64_t (*prepared_elements)(int64_t in);  // of a row
  int64_t prepared_size;                     // bytes of an element
  int32_t most_input;                        // int8

  // int8: the factor by which an output's weights [in] are too large for exact sums of products. At
  // most 1 if they may be packed. Null: all may.
  double (*excess)(const int8_t* weights, int64_t in);

  int64_t panels(int64_t out) const { return (out + panel_width - 1) / panel_width; }
};

extern const LinearKernel kLinearAvx512;
extern const LinearKernel kLinearBFloat16Avx512Bf16;
extern const LinearKernel kLinearBFloat16Avx512;
extern const LinearKernel kLinearAvx2;
extern const LinearKernel kLinearBFloat16Avx2;
extern const LinearKernel kLinearInt8Avx512Vnni;
extern const LinearKernel kLinearInt8Avx2;

// The kernels of this build, of each type the best first.
#if defined(__x86_64__)
inline constexpr const LinearKernel* kLinearKernels[] = {
    &kLinearAvx512,         &kLinearAvx2,         &kLinearBFloat16Avx512Bf16,
    &kLinearBFloat16Avx512, &kLinearBFloat16Avx2, &kLinearInt8Avx512Vnni,
    &kLinearInt8Avx2};
#else
inline constexpr std::array<const LinearKernel*, 0> kLinearKernels = {};
#endif

}  // namespace castor::kernels
