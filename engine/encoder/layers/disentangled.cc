#include "engine/encoder/layers/disentangled.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <utility>

#include "engine/attention/parallel.h"

namespace castor::encoder {
namespace {

// Elements of a block of scores, or of products with embeddings: a few milliseconds of one core.
int64_t BlockElements(bool cpu) { return int64_t{1} << (cpu ? 18 : 24); }

// Some heads of a sequence, whose scores are computed together, `rows` rows at a time.
struct HeadsOfSequence {
  int64_t begin;  // its first token
  int64_t tokens;
  int64_t first;
  int64_t heads;
  int64_t rows;
};

// Cuts a batch into such parts. The parts of a sequence do not depend on other sequences.
std::vector<HeadsOfSequence> Cut(const std::vector<int32_t>& offsets, int64_t heads, int64_t widest,
                                 int64_t elements) {
  std::vector<HeadsOfSequence> parts;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s], tokens = offsets[s + 1] - begin;
    const int64_t row = std::max(tokens, widest);
    const int64_t some = std::clamp<int64_t>(elements / (tokens * row), 1, heads);
    const int64_t rows = std::clamp<int64_t>(elements / (some * row), 1, tokens);
    for (int64_t h = 0; h < heads; h += some) {
      parts.push_back({begin, tokens, h, std::min(some, heads - h), rows});
    }
  }
  return parts;
}

// LibTorch has one thread only (device/cpu_device.cc), so parts run on Castor's threads. An
// exception of LibTorch is rethrown when all parts are done.
template <typename Attend>
absl::Status RunOnWorkers(const std::vector<HeadsOfSequence>& parts, int64_t head_dim,
                          RunControl& control, const Attend& attend) {
  double operations = 0;
  for (const HeadsOfSequence& part : parts) {
    operations += 8.0 * static_cast<double>(part.heads * part.tokens * part.tokens * head_dim);
  }
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  absl::Status done = attention::ParallelFor(
      static_cast<int64_t>(parts.size()), operations, control, [&](int /*worker*/, int64_t task) {
        const c10::InferenceMode inference;  // it applies to one thread
        try {
          attend(parts[task]);
        } catch (...) {
          if (!failed.exchange(true)) failure = std::current_exception();
        }
      });
  if (failure) std::rethrow_exception(failure);
  return done;
}

// From [2 * span, heads * head_dim] to [heads, 2 * span, head_dim], float32.
at::Tensor ByHeads(const at::Tensor& rows, int64_t heads) {
  return rows.to(at::kFloat).view({rows.size(0), heads, -1}).transpose(0, 1).contiguous();
}

}  // namespace

// Rounds as transformers does.
at::Tensor BucketsOfDistances(const DisentangledConfig& config) {
  const int64_t most = config.most_tokens;
  at::Tensor distances = at::arange(1 - most, most, at::TensorOptions().dtype(at::kLong));
  if (config.buckets > 0) {
    const auto mid = static_cast<double>(config.buckets / 2);
    const at::Tensor lengths = at::abs(distances).to(at::kFloat);
    const at::Tensor whole =
        at::log(at::full({}, (static_cast<double>(config.farthest) - 1) / mid, lengths.options()));
    const at::Tensor logs =
        at::ceil(at::log(at::clamp(lengths, mid - 1).div(mid)).div(whole).mul(mid - 1)).add(mid);
    distances = at::where(lengths.le(mid), distances.to(at::kFloat),
                          logs.mul(at::sign(distances).to(at::kFloat)))
                    .to(at::kLong);
  }
  return at::clamp(distances.add(config.span()), 0, 2 * config.span() - 1);
}

absl::StatusOr<at::Tensor> Disentangled::operator()(const Qkv& qkv, const RelativeRows& layer,
                                                    const at::Tensor& x,
                                                    const BodyInputs& in) const {
  const int64_t heads = qkv.heads, head_dim = qkv.head_dim();
  const absl::StatusOr<at::Tensor> projected =
      qkv(x, nullptr, nullptr, {.first = 0, .count = heads}, {}, in.control);
  if (!projected.ok()) return projected;
  const at::Tensor three = projected->view({x.size(0), 3, heads, head_dim});
  at::Tensor output = at::empty({x.size(0), heads, head_dim}, x.options());

  const auto attend = [&](const HeadsOfSequence& part) {
    const int64_t tokens = part.tokens;
    const auto rows_of = [&](int64_t which) {  // [part.heads, tokens, head_dim]
      return three.narrow(0, part.begin, tokens)
          .select(1, which)
          .narrow(1, part.first, part.heads)
          .transpose(0, 1)
          .to(at::kFloat);
    };
    const auto of_heads = [&](const at::Tensor& rows) {  // [part.heads, head_dim, 2 * span]
      return rows.narrow(0, part.first, part.heads).transpose(1, 2);
    };
    const at::Tensor query = rows_of(0).mul(config.scale);
    // Keys are in reverse order, so that the buckets of rows and keys are a view of the table.
    const at::Tensor key = at::flip(rows_of(1), {1});
    const at::Tensor value = at::flip(rows_of(2), {1});
    at::Tensor keys_meet;  // [part.heads, tokens, 2 * span]
    if (layer.queries.defined()) keys_meet = at::bmm(key, of_heads(layer.queries));
    for (int64_t first = 0; first < tokens; first += part.rows) {
      const int64_t rows = std::min(part.rows, tokens - first);
      const at::Tensor some = query.narrow(1, first, rows);
      const at::Tensor places =  // [rows, tokens]
          buckets.as_strided({rows, tokens}, {1, 1}, first - tokens + config.most_tokens);
      at::Tensor scores = at::bmm(some, key.transpose(1, 2));
      if (layer.keys.defined()) {
        scores.add_(at::gather(at::bmm(some, of_heads(layer.keys)), 2,
                               places.unsqueeze(0).expand({part.heads, rows, tokens})));
      }
      if (keys_meet.defined()) {
        const at::Tensor index = places.t().unsqueeze(0).expand({part.heads, tokens, rows});
        scores.add_(at::gather(keys_meet, 2, index).transpose(1, 2));
      }
      output.narrow(0, part.begin + first, rows)
          .narrow(1, part.first, part.heads)
          .copy_(at::bmm(at::softmax(scores, 2), value).transpose(0, 1));
    }
  };

  const bool cpu = x.device().is_cpu();
  const std::vector<HeadsOfSequence> parts =
      Cut(in.packing.cu_seqlens, heads, std::max(2 * config.span(), head_dim), BlockElements(cpu));
  absl::Status done;
  if (cpu) {
    done = RunOnWorkers(parts, head_dim, in.control, attend);
  } else {
    for (size_t i = 0; i < parts.size() && done.ok(); ++i) {
      attend(parts[i]);
      done = in.control.Checkpoint();
    }
  }
  if (!done.ok()) return done;
  return output.view({x.size(0), heads * head_dim});
}

kernels::Count Disentangled::batch_bytes(int64_t head_dim) const {
  using kernels::Count;
  const bool cpu = buckets.device().is_cpu();
  // A block has one head at least: scores, their softmax and gathered terms; products with
  // embeddings; queries, keys and values, before and after they are reordered.
  const Count block = std::max(Count(BlockElements(cpu)),
                               Count(config.most_tokens) * std::max(2 * config.span(), head_dim));
  return 12 * block * static_cast<int64_t>(sizeof(float)) *
         (cpu ? attention::ParallelWorkers() : 1);
}

Disentangled TakeDisentangled(WeightReader& weights, const DisentangledConfig& config,
                              const std::string& layers, const std::vector<const Qkv*>& qkv) {
  Disentangled taken{.config = config, .buckets = {}, .layers = {}};
  const int64_t hidden = qkv.front()->linear.in(), heads = qkv.front()->heads;
  const int64_t width = heads * qkv.front()->head_dim();
  at::Tensor rows = weights.Take("encoder.rel_embeddings.weight", {2 * config.span(), hidden});
  if (config.normed) {
    const LayerNorm norm = TakeNorm(weights, "encoder.LayerNorm", hidden, config.epsilon);
    if (weights.status().ok()) rows = norm(rows);
  }
  for (size_t i = 0; i < qkv.size() && weights.status().ok(); ++i) {
    const std::string at = layers + "." + std::to_string(i) + ".attention.self.";
    RelativeRows layer;
    const auto project = [&](bool wanted, const char* name, int64_t part) -> at::Tensor {
      if (!wanted) return {};
      if (config.shared) return ByHeads(qkv[i]->linear(rows).narrow(1, part * width, width), heads);
      const Linear own = TakeLinear(weights, at + name, width, hidden);
      return weights.status().ok() ? ByHeads(own(rows), heads) : at::Tensor();
    };
    layer.keys = project(config.of_queries, "pos_key_proj", 1);
    layer.queries = project(config.of_keys, "pos_query_proj", 0);
    if (layer.queries.defined()) layer.queries.mul_(config.scale);
    for (const at::Tensor& made : {layer.keys, layer.queries}) {
      if (!made.defined()) continue;
      weights.CountCopies(made.numel() * static_cast<int64_t>(sizeof(float)) /
                          static_cast<int64_t>(rows.element_size()));
    }
    taken.layers.push_back(std::move(layer));
  }
  taken.buckets = BucketsOfDistances(config).to(weights.device());
  return taken;
}

}  // namespace castor::encoder
