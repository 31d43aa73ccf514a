#include "engine/encoder/network/row_probe.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "engine/attention/cost/fidelity.h"
#include "engine/attention/cost/rungs.h"

namespace castor::encoder {
namespace {

// [rows], float32: what rows lose if `approximate` is added to `x` instead of `exact`.
at::Tensor Parts(const at::Tensor& approximate, const at::Tensor& exact, const at::Tensor& x) {
  // A row of zeros that should be zero is no loss.
  constexpr double kLeastNorm = 1e-30;
  // In double precision, squares of finite values are finite.
  const at::Tensor expected = exact.to(at::kDouble);
  const at::Tensor lost = approximate.to(at::kDouble).sub_(expected).square_().sum(1);
  const at::Tensor norm = x.to(at::kDouble).add_(expected).square_().sum(1);
  return lost.div_(norm.clamp_min_(kLeastNorm)).to(at::kFloat);
}

}  // namespace

RowProbe::RowProbe(const Batch& batch, const Packing& packing, at::Device device)
    : items_in_batch_(batch.items.size()) {
  if (!attention::IsApproximate(NameOf(batch.kernel))) return;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& from = batch.items[i];
    if (from.probe_rows == 0) continue;
    attention::FidelityRows drawn = attention::DrawFidelityRows(attention::SeedOf(batch.kernel),
                                                                from.probe_rows, from.cu_seqlens);
    Item item{.index = i,
              .first_token = packing.first_token[i],
              .cu_rows = std::move(drawn.cu_seqlens),
              .cu_keys = {from.cu_seqlens.begin(), from.cu_seqlens.end()}};
    std::vector<int64_t> rows;
    std::vector<int64_t> sequences;
    std::vector<float> shares;
    for (size_t s = 0; s + 1 < item.cu_rows.size(); ++s) {
      const int32_t count = item.cu_rows[s + 1] - item.cu_rows[s];
      for (int32_t r = item.cu_rows[s]; r < item.cu_rows[s + 1]; ++r) {
        rows.push_back(item.first_token + drawn.tokens[static_cast<size_t>(r)]);
        sequences.push_back(static_cast<int64_t>(s));
        shares.push_back(1 / static_cast<float>(count));
      }
    }
    item.rows = at::tensor(rows, at::kLong).to(device);
    item.sequences = at::tensor(sequences, at::kLong).to(device);
    item.shares = at::tensor(shares, at::kFloat).to(device);
    item.losses = at::zeros({from.sequences()}, at::TensorOptions(at::kFloat).device(device));
    items_.push_back(std::move(item));
  }
}

absl::Status RowProbe::AddHeads(const attention::Spec& spec, const at::Tensor& qkv,
                                const AttentionFn& attention, RunControl& control) {
  if (!attention::IsApproximate(NameOf(spec.kernel))) return absl::OkStatus();
  attention::Spec exact = spec;
  exact.kernel = Vanilla{};
  const int64_t stride = qkv.size(1);
  const int64_t hidden = stride / 3;
  const auto element = static_cast<int64_t>(qkv.element_size());
  for (Item& item : items_) {
    const at::Tensor query = at::index_select(qkv.narrow(1, 0, hidden), 0, item.rows);
    const at::Tensor output = at::empty_like(query);
    const auto* const base =
        static_cast<const std::byte*>(qkv.const_data_ptr()) + item.first_token * stride * element;
    attention::Problem problem;
    problem.query = static_cast<const std::byte*>(query.const_data_ptr());
    problem.key = base + hidden * element;
    problem.value = base + 2 * hidden * element;
    problem.output = static_cast<std::byte*>(output.mutable_data_ptr());
    problem.query_stride = problem.output_stride = hidden;
    problem.key_stride = problem.value_stride = stride;
    problem.cu_seqlens_q = item.cu_rows;
    problem.cu_seqlens_k = item.cu_keys;
    if (absl::Status status = attention(exact, problem, control); !status.ok()) return status;
    item.exact.push_back(output);
  }
  return absl::OkStatus();
}

absl::Status RowProbe::EndLayer(const Addition& addition, RunControl& control) {
  for (Item& item : items_) {
    if (item.exact.empty()) continue;
    const at::Tensor exact = at::cat(item.exact, 1);
    item.exact.clear();
    for (int64_t first = 0; first < exact.size(0); first += addition.step) {
      const int64_t count = std::min(addition.step, exact.size(0) - first);
      const at::Tensor rows = item.rows.narrow(0, first, count);
      const at::Tensor parts = Parts(addition.output(at::index_select(addition.mixed, 0, rows)),
                                     addition.output(exact.narrow(0, first, count)),
                                     at::index_select(addition.x, 0, rows));
      item.losses.index_add_(0, item.sequences.narrow(0, first, count),
                             parts.mul_(item.shares.narrow(0, first, count)));
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> RowProbe::Losses() const {
  std::vector<at::Tensor> losses(items_in_batch_);
  for (const Item& item : items_) losses[item.index] = item.losses;
  return losses;
}

}  // namespace castor::encoder
