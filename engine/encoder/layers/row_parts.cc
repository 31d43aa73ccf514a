#include "engine/encoder/layers/row_parts.h"

#include <algorithm>
#include <cstddef>

#include "engine/attention/parallel.h"
#include "engine/base/run_control.h"
#include "engine/kernels/cpu/linear/row_parts.h"

namespace castor::encoder {
namespace {

using kernels::RowPartsKernel;

// Best first.
constexpr const RowPartsKernel* kRowPartsKernels[] = {
#if defined(__x86_64__)
    &kernels::kRowPartsAvx512,
    &kernels::kRowPartsAvx2,
#endif
    nullptr,
};

const RowPartsKernel* FindRowPartsKernel(const at::Tensor& rows) {
  if (!rows.device().is_cpu()) return nullptr;
  for (const RowPartsKernel* kernel : kRowPartsKernels) {
    if (kernel != nullptr && kernel->runs_here()) return kernel;
  }
  return nullptr;
}

kernels::Element PartsElement(const at::Tensor& rows) {
  return rows.scalar_type() == at::kBFloat16 ? kernels::Element::kBFloat16
                                             : kernels::Element::kFloat32;
}

// Calls f(row) for all rows, of `operations` each.
template <typename F>
void ForRows(int64_t rows, double operations, F f) {
  constexpr int64_t kTaskRows = 16;
  const auto run = [&](int, int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kTaskRows);
    for (int64_t r = task * kTaskRows; r < end; ++r) f(r);
  };
  // Nothing ends it, so there is no error.
  (void)attention::ParallelFor((rows + kTaskRows - 1) / kTaskRows,
                               operations * static_cast<double>(rows), RunToEnd(), run);
}

}  // namespace

void MultiplyRows(const at::Tensor& y, const at::Tensor& x) {
  const RowPartsKernel* kernel = FindRowPartsKernel(y);
  if (kernel == nullptr) {
    y.mul_(x);
    return;
  }
  constexpr double kOperations = 4;  // for an element: it is about memory
  const int64_t width = y.size(1);
  const int64_t bytes = width * static_cast<int64_t>(y.element_size());
  auto* to = static_cast<std::byte*>(y.mutable_data_ptr());
  const auto* from = static_cast<const std::byte*>(x.const_data_ptr());
  ForRows(y.size(0), kOperations * static_cast<double>(width), [&](int64_t r) {
    kernel->multiply(PartsElement(y), to + r * bytes, from + r * bytes, width);
  });
}

bool TurnRows(const at::Tensor& rows, int64_t heads, const at::Tensor& cos, const at::Tensor& sin) {
  const RowPartsKernel* kernel = FindRowPartsKernel(rows);
  if (kernel == nullptr) return false;
  constexpr double kOperations = 12;  // for a pair
  const int64_t half = cos.size(1);
  const int64_t stride = rows.stride(0) * static_cast<int64_t>(rows.element_size());
  auto* data = static_cast<std::byte*>(rows.mutable_data_ptr());
  const auto* const cosines = cos.const_data_ptr<float>();
  const auto* const sines = sin.const_data_ptr<float>();
  ForRows(rows.size(0), kOperations * static_cast<double>(heads * half), [&](int64_t r) {
    kernel->rotate(PartsElement(rows), data + r * stride, heads, half, cosines + r * half,
                   sines + r * half);
  });
  return true;
}

}  // namespace castor::encoder
