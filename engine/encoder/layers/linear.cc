#include "engine/encoder/layers/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/base/run_control.h"

namespace castor::encoder {
namespace {

using kernels::LinearKernel;
using kernels::LinearType;
using kernels::RowScale;

const LinearKernel* FindKernel(at::Device device, LinearType type, int64_t in) {
  if (!device.is_cpu()) return nullptr;
  for (const LinearKernel* kernel : kernels::kLinearKernels) {
    if (kernel->type != type || !kernel->runs_here()) continue;
    if (kernel->packs(in) && (kernel->pays == nullptr || kernel->pays())) return kernel;
  }
  return nullptr;
}

std::optional<kernels::Activation> FusedActivation(std::optional<Activation> activation) {
  if (!activation.has_value()) return kernels::Activation::kNone;
  switch (*activation) {
    case Activation::kGeluErf:
      return kernels::Activation::kGeluErf;
    case Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case Activation::kQuickGelu:
      return kernels::Activation::kQuickGelu;
    case Activation::kRelu:
      return kernels::Activation::kRelu;
    case Activation::kSilu:
      return kernels::Activation::kSilu;
    case Activation::kTanh:
      return kernels::Activation::kTanh;
    case Activation::kMish:
      return std::nullopt;
  }
  return std::nullopt;
}

// How a product is cut into tasks: blocks of rows by groups of panels.
struct TaskCut {
  int64_t tiles;   // of rows
  int64_t blocks;  // of tiles
  int64_t panels;
  int64_t groups;  // of panels

  TaskCut(const LinearKernel& kernel, int64_t rows, int64_t in, int64_t out) {
    // A block's rows stay in the second-level cache while panels are multiplied.
    constexpr int64_t kBlockRows = 96;
    // A task should be worth its overhead: about 5 us or more of one core.
    constexpr int64_t kTaskProducts = 500'000;
    // Small products are shared evenly, even if a worker starts late.
    constexpr int64_t kTasksPerWorker = 8;
    tiles = (rows + kernel.tile_rows - 1) / kernel.tile_rows;
    blocks = (rows + kBlockRows - 1) / kBlockRows;
    panels = kernel.panels(out);
    const int64_t wanted = kTasksPerWorker * attention::ParallelWorkers();
    const int64_t most = std::max<int64_t>(1, rows * in * out / kTaskProducts);
    groups = std::clamp<int64_t>(std::min(wanted, most) / blocks, 1, panels);
  }
};

// Inputs as a kernel takes them.
struct KernelRows {
  AlignedArray<char> values = {};     // [rows, stride], elements of the kernel's
  int64_t stride = 0;                 // elements
  std::vector<RowScale> scales = {};  // [rows]
};

// The products below have no checkpoints, so ParallelFor returns no error. Callers pass no more
// rows than may be processed between two checkpoints.

// x: [rows, in].
KernelRows PrepareRows(const LinearKernel& kernel, const at::Tensor& x) {
  constexpr int64_t kTaskRows = 16;
  constexpr double kOperations = 8;  // per element
  const int64_t rows = x.size(0), in = x.size(1);
  KernelRows out{.stride = kernel.prepared_elements(in)};
  const int64_t row_bytes = out.stride * kernel.prepared_size;
  out.values = AllocateAligned<char>(rows * row_bytes);
  out.scales.resize(static_cast<size_t>(rows));
  const auto* const from = static_cast<const char*>(x.const_data_ptr());
  const int64_t from_bytes = x.stride(0) * static_cast<int64_t>(x.element_size());
  const auto run = [&](int, int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kTaskRows);
    for (int64_t r = task * kTaskRows; r < end; ++r) {
      out.scales[static_cast<size_t>(r)] =
          kernel.prepare(from + r * from_bytes, in, out.values.get() + r * row_bytes);
    }
  };
  (void)attention::ParallelFor((rows + kTaskRows - 1) / kTaskRows,
                               kOperations * static_cast<double>(rows) * static_cast<double>(in),
                               RunToEnd(), run);
  return out;
}

// `prepared` keeps what the rows point to.
kernels::LinearRows RowsFor(const LinearKernel& kernel, const at::Tensor& x, const at::Tensor& y,
                            KernelRows* prepared) {
  kernels::LinearRows rows{.x = x.const_data_ptr(),
                           .x_stride = x.stride(0),
                           .x_scales = nullptr,
                           .y = y.mutable_data_ptr(),
                           .y_stride = y.stride(0)};
  if (kernel.prepare == nullptr) return rows;
  *prepared = PrepareRows(kernel, x);
  rows.x = prepared->values.get();
  rows.x_stride = prepared->stride;
  rows.x_scales = prepared->scales.data();
  return rows;
}

struct Factor {
  const LinearKernel& kernel;
  kernels::PackedMatrix matrix;
  kernels::LinearRows rows;
};

// Computes all rows. `adapter`, if any, is a product for the same outputs, to which this one adds:
// each task does its part of both, while its outputs are in the cache.
void Multiply(const Factor& product, const Factor* adapter, int64_t count,
              kernels::Activation activation) {
  const auto& [kernel, matrix, rows] = product;
  if (adapter != nullptr && adapter->kernel.panel_width != kernel.panel_width) {
    Multiply(*adapter, nullptr, count, kernels::Activation::kNone);
    adapter = nullptr;
  }
  const TaskCut cut(kernel, count, matrix.in, matrix.out);
  const double operations = 2.0 * static_cast<double>(count) * static_cast<double>(matrix.in) *
                            static_cast<double>(matrix.out);
  const auto run = [&](int, int64_t task) {
    const int64_t block = task / cut.groups;
    const int64_t group = task % cut.groups;
    const auto row = [&](int64_t b) {
      return std::min(count, cut.tiles * b / cut.blocks * kernel.tile_rows);
    };
    const auto panel = [&](int64_t g) { return cut.panels * g / cut.groups; };
    if (adapter != nullptr) {
      adapter->kernel.run(adapter->matrix, adapter->rows, kernels::Activation::kNone, row(block),
                          row(block + 1), panel(group), panel(group + 1));
    }
    product.kernel.run(product.matrix, product.rows, activation, row(block), row(block + 1),
                       panel(group), panel(group + 1));
  };
  (void)attention::ParallelFor(cut.blocks * cut.groups, operations, RunToEnd(), run);
}

// Packs W [out, in], some panels at a time.
void Pack(const LinearKernel& kernel, const void* weights, size_t element_bytes, int64_t in,
          int64_t out, uint32_t* packed) {
  constexpr int64_t kTaskElements = 1 << 18;
  constexpr double kOperations = 16;  // per element
  const int64_t step = kernel.panel_width * (1 + kTaskElements / (in * kernel.panel_width));
  const auto run = [&](int, int64_t task) {
    const int64_t first = task * step;
    const auto* const from =
        static_cast<const char*>(weights) + first * in * static_cast<int64_t>(element_bytes);
    kernel.pack(from, in, std::min(step, out - first), packed + kernel.packed_words(in, first));
  };
  (void)attention::ParallelFor((out + step - 1) / step,
                               kOperations * static_cast<double>(in) * static_cast<double>(out),
                               RunToEnd(), run);
}

}  // namespace

Linear::Linear(at::Tensor weight, at::Tensor bias, bool int8)
    : weight_(std::move(weight)), bias_(std::move(bias)) {
  if (!weight_.defined()) return;  // the reader has an error
  out_ = weight_.size(0);
  in_ = weight_.size(1);
  const LinearType floats =
      weight_.scalar_type() == at::kBFloat16 ? LinearType::kBFloat16 : LinearType::kFloat32;
  kernel_ = FindKernel(weight_.device(), int8 ? LinearType::kInt8 : floats, in_);
  // A row too long for sums of 8 bits stays in float32.
  if (int8 && kernel_ == nullptr) kernel_ = FindKernel(weight_.device(), floats, in_);
  if (kernel_ == nullptr) return;
  if (bias_.defined()) bias_ = bias_.to(at::kFloat);
  weight_ = weight_.contiguous();
  packed_ = AllocateAligned<uint32_t>(kernel_->packed_words(in_, out_));
  if (kernel_->type == LinearType::kInt8) {
    Weights8 weights = QuantizeWeights(weight_, *kernel_);
    Pack(*kernel_, weights.values.get(), sizeof(int8_t), in_, out_, packed_.get());
    scales_ = std::move(weights.scales);
    sums_ = std::move(weights.sums);
  } else {
    Pack(*kernel_, weight_.const_data_ptr(), weight_.element_size(), in_, out_, packed_.get());
  }
  weight_.reset();
}

void Linear::set_adapters(std::vector<Adapter> adapters) { adapters_ = std::move(adapters); }

bool Linear::HasInt8(at::Device device) {
  return FindKernel(device, LinearType::kInt8, 1) != nullptr;
}

int64_t Linear::scratch_bytes_of_row() const {
  int64_t adapted = 0;
  for (const Adapter& adapter : adapters_) {
    // In the type of the rows; with 8 bits that is float32, the widest.
    const int64_t between = adapter.a.out() * static_cast<int64_t>(sizeof(float));
    adapted = std::max(
        adapted, between + adapter.a.scratch_bytes_of_row() + adapter.b.scratch_bytes_of_row());
  }
  if (kernel_ == nullptr && adapted > 0) adapted += out_ * static_cast<int64_t>(sizeof(float));
  if (kernel_ == nullptr || kernel_->prepare == nullptr) return adapted;
  return kernel_->prepared_elements(in_) * kernel_->prepared_size +
         static_cast<int64_t>(sizeof(RowScale)) + adapted;
}

int64_t Linear::column_grain() const {
  int64_t grain = kernel_ == nullptr ? 1 : kernel_->panel_width;
  for (const Adapter& adapter : adapters_) grain = std::lcm(grain, adapter.b.column_grain());
  return grain;
}

kernels::PackedMatrix Linear::Matrix(const Columns& columns) const {
  return {
      .in = in_,
      .out = columns.count,
      .panels = packed_.get() + kernel_->packed_words(in_, columns.first),
      .bias = bias_.defined() ? bias_.const_data_ptr<float>() + columns.first : nullptr,
      .scales = scales_ == nullptr ? nullptr : scales_.get() + columns.first,
      .sums = sums_ == nullptr ? nullptr : sums_.get() + columns.first,
  };
}

void Linear::ProductInto(const at::Tensor& x, std::span<const Columns> parts,
                         kernels::Activation activation, const Adapter* adapter, bool add,
                         const at::Tensor& y) const {
  const at::Tensor from = x.stride(1) == 1 ? x : x.contiguous();
  KernelRows prepared{}, prepared_between{};
  Factor product{*kernel_, {}, RowsFor(*kernel_, from, y, &prepared)};
  product.rows.add = add || adapter != nullptr;
  std::optional<Factor> its;
  at::Tensor between;
  if (adapter != nullptr) {
    between = adapter->a(from);
    const LinearKernel& kernel = *adapter->b.kernel_;
    its.emplace(Factor{kernel, {}, RowsFor(kernel, between, y, &prepared_between)});
  }
  for (const Columns& columns : parts) {
    product.matrix = Matrix(columns);
    if (its.has_value()) its->matrix = adapter->b.Matrix(columns);
    Multiply(product, its.has_value() ? &*its : nullptr, x.size(0), activation);
    product.rows.y =
        static_cast<char*>(product.rows.y) + columns.count * static_cast<int64_t>(y.element_size());
    if (its.has_value()) its->rows.y = product.rows.y;
  }
}

at::Tensor Linear::Product(const at::Tensor& x, std::span<const Columns> parts,
                           kernels::Activation activation, const TaskRows& tasks) const {
  int64_t out = 0;
  for (const Columns& columns : parts) out += columns.count;
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  ForAdapters(tasks, x.size(0), adapters_, [&](int64_t first, int64_t count, const Adapter* its) {
    ProductInto(x.narrow(0, first, count), parts, activation, its, /*add=*/false,
                y.narrow(0, first, count));
  });
  return y;
}

at::Tensor Linear::operator()(const at::Tensor& x, std::optional<Activation> activation,
                              const TaskRows& tasks) const {
  if (kernel_ == nullptr) {
    at::Tensor y = at::linear(x, weight_, bias_);
    ForAdapters(tasks, x.size(0), adapters_, [&](int64_t first, int64_t count, const Adapter* its) {
      if (its != nullptr)
        its->b.AddTo(its->a(x.narrow(0, first, count)), y.narrow(0, first, count));
    });
    return activation.has_value() ? Activate(*activation, std::move(y)) : y;
  }
  const std::optional<kernels::Activation> fused = FusedActivation(activation);
  const Columns all = {.first = 0, .count = out_};
  at::Tensor y = Product(x, {&all, 1}, fused.value_or(kernels::Activation::kNone), tasks);
  return fused.has_value() ? y : Activate(*activation, std::move(y));
}

at::Tensor Linear::Part(const at::Tensor& x, std::span<const Columns> parts,
                        const TaskRows& tasks) const {
  for (const Columns& columns : parts) TORCH_CHECK(columns.first % column_grain() == 0);
  if (kernel_ != nullptr) return Product(x, parts, kernels::Activation::kNone, tasks);
  std::vector<at::Tensor> outputs;
  for (const auto& [first, count] : parts) {
    outputs.push_back(at::linear(x, weight_.narrow(0, first, count),
                                 bias_.defined() ? bias_.narrow(0, first, count) : bias_));
  }
  at::Tensor y = at::cat(outputs, 1);
  ForAdapters(tasks, x.size(0), adapters_, [&](int64_t first, int64_t count, const Adapter* its) {
    if (its == nullptr) return;
    y.narrow(0, first, count).add_(its->b.Part(its->a(x.narrow(0, first, count)), parts));
  });
  return y;
}

void Linear::AddTo(const at::Tensor& x, const at::Tensor& y) const {
  const Columns all = {.first = 0, .count = out_};
  if (kernel_ == nullptr) {
    y.add_(at::linear(x, weight_, bias_));
  } else {
    ProductInto(x, {&all, 1}, kernels::Activation::kNone, nullptr, /*add=*/true, y);
  }
}

namespace {

// Writes the weights `from` [in] as multiples of the scale that it returns. Zeros have the scale 1.
float QuantizeOutput(const float* from, int64_t in, const kernels::LinearKernel& kernel,
                     int8_t* to) {
  float greatest = 0;
  for (int64_t i = 0; i < in; ++i) greatest = std::max(greatest, std::abs(from[i]));
  // A subnormal scale is too inexact: weights divided by it could exceed 127.
  float scale = greatest / 127;
  if (!std::isnormal(scale)) {
    std::fill_n(to, in, int8_t{0});
    return 1;
  }
  // Rounding may exceed the limit again, so the scale grows by at least this factor, which is more
  // than a weight's step.
  constexpr double kLeastGrowth = 1.01;
  for (;;) {
    for (int64_t i = 0; i < in; ++i) to[i] = static_cast<int8_t>(std::lrintf(from[i] / scale));
    const double excess = kernel.excess == nullptr ? 0 : kernel.excess(to, in);
    if (excess <= 1) return scale;
    scale *= static_cast<float>(std::max(excess, kLeastGrowth));
  }
}

}  // namespace

Weights8 QuantizeWeights(const at::Tensor& weight, const kernels::LinearKernel& kernel) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const int64_t padded = kernel.panels(out) * kernel.panel_width;
  Weights8 weights{.values = AllocateAligned<int8_t>(out * in),
                   .scales = AllocateAligned<float>(padded),
                   .sums = AllocateAligned<int32_t>(padded)};
  std::fill_n(weights.scales.get(), padded, 1.0F);
  std::fill_n(weights.sums.get(), padded, 0);
  const float* const from = weight.const_data_ptr<float>();
  for (int64_t o = 0; o < out; ++o) {
    int8_t* const values = weights.values.get() + o * in;
    weights.scales[o] = QuantizeOutput(from + o * in, in, kernel, values);
    weights.sums[o] = std::accumulate(values, values + in, int32_t{0});
  }
  return weights;
}

std::optional<Activation> ParseActivation(std::string_view name) {
  struct Row {
    std::string_view name;
    Activation activation;
  };
  constexpr Row kRows[] = {
      {"gelu", Activation::kGeluErf},
      {"gelu_python", Activation::kGeluErf},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"tanh", Activation::kTanh},
      {"mish", Activation::kMish},
  };
  for (const Row& row : kRows) {
    if (row.name == name) return row.activation;
  }
  return std::nullopt;
}

at::Tensor Activate(Activation activation, at::Tensor x) {
  switch (activation) {
    case Activation::kGeluErf:
      return at::gelu_(x, "none");
    case Activation::kGeluTanh:
      return at::gelu_(x, "tanh");
    case Activation::kQuickGelu:
      return x.mul_(at::sigmoid(x.mul(1.702)));
    case Activation::kRelu:
      return at::relu_(x);
    case Activation::kSilu:
      return at::silu_(x);
    case Activation::kTanh:
      return at::tanh_(x);
    case Activation::kMish:
      return at::mish_(x);
  }
  return x;
}

}  // namespace castor::encoder
