#include "engine/encoder/layers/feed_forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/encoder/layers/rope.h"

namespace castor::encoder {

at::Tensor FeedForward::operator()(const at::Tensor& x, const TaskRows& tasks) const {
  if (!experts.empty()) return Mix(x);
  const at::Tensor wide = in(x, activation, tasks);
  if (gated) MultiplyRows(wide, gate(x, std::nullopt, tasks));
  return out(wide, std::nullopt, tasks);
}

// Each expert's rows go through it together. A row's sum is in the order of experts, so that its
// bits do not depend on other rows.
at::Tensor FeedForward::Mix(const at::Tensor& x) const {
  const auto [weights, which] = at::topk(at::softmax(router(x).to(at::kFloat), 1), of_row, 1);
  const at::Tensor factors = weights.to(x.scalar_type()).view(-1);
  at::Tensor sum = at::zeros_like(x);
  for (size_t e = 0; e < experts.size(); ++e) {
    const at::Tensor places = which.eq(static_cast<int64_t>(e)).view(-1).nonzero().squeeze(1);
    if (places.size(0) == 0) continue;
    const at::Tensor rows = at::floor_divide(places, of_row);
    const at::Tensor out = experts[e](at::index_select(x, 0, rows));
    sum.index_add_(0, rows, out.mul_(at::index_select(factors, 0, places).unsqueeze(1)));
  }
  return sum.add_(bias);
}

int64_t FeedForward::elements() const {
  if (experts.empty()) return in.elements() + gate.elements() + out.elements();
  return router.elements() + of_row * experts.front().elements();
}

kernels::Count FeedForward::row_bytes(int64_t element) const {
  using kernels::Count;
  if (!experts.empty()) {
    // All rows may have the same expert: their copies, its memory and the sums; and for the router
    // logits, their softmax, and a few numbers for each choice.
    const auto logits = Count(std::ssize(experts)) * 3 * int64_t{sizeof(float)};
    return experts.front().row_bytes(element) + Count(2 * router.in()) * element + logits +
           Count(of_row) * 8 * int64_t{sizeof(int64_t)} + router.scratch_bytes_of_row();
  }
  const Count wide = Count(out.in()) * element;
  const Count result = Count(out.out()) * element;
  // No product fuses this activation without a kernel.
  const Count activating = activation == Activation::kQuickGelu ? 2 * wide : Count(0);
  const Count gating = gated ? wide + gate.scratch_bytes_of_row() : Count(0);
  return wide + std::max({activating, Count(in.scratch_bytes_of_row()), gating,
                          result + out.scratch_bytes_of_row()});
}

FeedForward TakeFeedForward(WeightReader& weights, const std::string& at,
                            const FeedForwardNames& names, const FeedForwardConfig& config,
                            int64_t hidden) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  FeedForward taken;
  taken.activation = config.activation;
  if (config.experts > 0) {
    const std::vector<int64_t> shape = {config.experts * config.width, hidden};
    taken.router =
        Linear(weights.Take(name(names.router) + ".weight", {config.experts, hidden}), {});
    const at::Tensor in = weights.Take(name(names.experts_in), shape);
    const at::Tensor out = weights.Take(name(names.experts_out), shape);
    taken.bias = weights.Take(name(names.experts_bias), {hidden});
    taken.of_row = config.of_row;
    if (!weights.status().ok()) return taken;
    if (weights.int8()) weights.CountInt8(in.numel() + out.numel());
    for (int64_t e = 0; e < config.experts; ++e) {
      const auto part = [&](const at::Tensor& of) {
        return of.narrow(0, e * config.width, config.width);
      };
      taken.experts.push_back({.in = Linear(part(in), {}, weights.int8()),
                               .gate = {},
                               .out = Linear(part(out).t().contiguous(), {}, weights.int8()),
                               .activation = config.activation});
    }
    return taken;
  }
  taken.gated = config.gated;
  if (config.gated && names.gate.empty()) {
    std::array<Linear, 2> halves =
        TakeLinearHalves(weights, name(names.in), config.width, hidden, config.in_bias);
    taken.in = std::move(halves[names.gate_first ? 1 : 0]);
    taken.gate = std::move(halves[names.gate_first ? 0 : 1]);
  } else {
    taken.in = TakeLinear(weights, name(names.in), config.width, hidden, config.in_bias);
    if (config.gated) {
      taken.gate = TakeLinear(weights, name(names.gate), config.width, hidden, config.in_bias);
    }
  }
  taken.out = TakeLinear(weights, name(names.out), hidden, config.width, config.out_bias);
  return taken;
}

}  // namespace castor::encoder
