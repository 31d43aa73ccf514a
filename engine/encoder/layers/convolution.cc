#include "engine/encoder/layers/convolution.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/encoder/network/layers.h"

namespace castor::encoder {
namespace {

constexpr int64_t kCpuRows = 1024;

}  // namespace

at::Tensor Convolution::Copy(const at::Tensor& x) {
  return at::cat({x, at::zeros({1, x.size(1)}, x.options())});
}

absl::Status Convolution::operator()(const at::Tensor& inputs, const at::Tensor& x,
                                     const BodyInputs& in) const {
  // The row of `inputs` for each token and tap.
  const int64_t tokens = x.size(0), taps = config.taps();
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(tokens * taps));
  const std::vector<int32_t>& offsets = in.packing.cu_seqlens;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s], end = offsets[s + 1];
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t other = t - config.reach; other <= t + config.reach; ++other) {
        places.push_back(other >= begin && other < end ? other : tokens);
      }
    }
  }
  const at::Tensor index = at::tensor(places, at::kLong).to(x.device());
  const int64_t step =
      x.device().is_cpu() ? std::min(kCpuRows, RowsOfAStep(x, linear.elements())) : tokens;
  return InSteps(tokens, step, in.control, [&](int64_t first, int64_t count) {
    const at::Tensor taken =
        at::index_select(inputs, 0, index.narrow(0, first * taps, count * taps));
    const at::Tensor rows = x.narrow(0, first, count);
    norm.AddNorm(linear(taken.view({count, linear.in()}), config.activation), rows, rows);
  });
}

kernels::Count Convolution::token_bytes(int64_t element) const {
  // The copy of the inputs, and the places on the host and on the device.
  return kernels::Count(linear.out()) * element +
         3 * kernels::Count(config.taps()) * int64_t{sizeof(int64_t)};
}

kernels::Count Convolution::batch_bytes(int64_t element) const {
  return kernels::Count(linear.out()) * element +
         kCpuRows *
             (kernels::Count(linear.in() + linear.out()) * element + linear.scratch_bytes_of_row());
}

Convolution TakeConvolution(WeightReader& weights, const ConvolutionConfig& config,
                            int64_t hidden) {
  const at::Tensor stored =
      weights.Take("encoder.conv.conv.weight", {hidden, hidden, config.taps()});
  at::Tensor bias = weights.Take("encoder.conv.conv.bias", {hidden});
  LayerNorm norm = TakeNorm(weights, "encoder.conv.LayerNorm", hidden, config.epsilon);
  if (!weights.status().ok()) return {};
  if (weights.int8()) weights.CountInt8(stored.numel());
  at::Tensor by_taps = stored.transpose(1, 2).reshape({hidden, config.taps() * hidden});
  return {.config = config,
          .linear = Linear(std::move(by_taps), std::move(bias), weights.int8()),
          .norm = std::move(norm)};
}

}  // namespace castor::encoder
