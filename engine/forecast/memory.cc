#include "engine/forecast/memory.h"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/prompts.h"
#include "engine/kernels/count.h"

namespace castor {
namespace {

using attention::Count;
using attention::Spec;
using attention::Variant;

// On the CPU: bounds for lists of tasks and offsets, which kernels do not count in their workspace,
// and for the little that libraries allocate.
constexpr int64_t kListsOfSequence = 256;
constexpr int64_t kListsOfToken = 2;
constexpr int64_t kListsOfBatch = 256 << 10;

// The bytes that a GPU's allocator may take for a batch's tensors beyond their sizes: a large
// tensor may be 1 MiB smaller than its block.
constexpr int64_t kBlocksOfBatch = int64_t{8} << 20;

// The sizes of the tensors that a device with its own memory copies.
Count TensorBytes(const Spec& spec, int64_t query_tokens, int64_t key_tokens) {
  const Count query_row = Count(spec.heads) * spec.head_dim;
  const Count queries = query_row + Count(spec.heads) * spec.value_dim;  // and the output
  const Count rows =
      query_tokens * queries + key_tokens * (Count(spec.key_row()) + spec.value_row());
  Count bytes = rows * static_cast<int64_t>(SizeOf(spec.dtype));
  if (spec.log_sum_exp) {
    bytes += Count(query_tokens) * spec.heads * static_cast<int64_t>(sizeof(float));
  }
  Count biases = Count(key_tokens) * spec.key_bias_heads;
  if (spec.bias.any()) biases += Count(spec.heads) * (2 * spec.bias.reach + 3);  // slopes, table
  bytes += biases * static_cast<int64_t>(sizeof(float));
  if (std::holds_alternative<Cast>(spec.kernel)) {
    bytes += query_row * spec.surrogates * static_cast<int64_t>(SizeOf(spec.dtype));
    bytes += Count(query_tokens) * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

}  // namespace

// A variant reports the workspace of a whole problem. The part for no sequence at all is shared. It
// is extrapolated from the workspaces of one and of two sequences of a single token.
MemoryNeed MemoryForecast::WorkspaceOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                       std::span<const int32_t> cu_seqlens_k) const {
  const Variant* const variant = attention::FindVariant(variants_, spec);
  if (variant == nullptr || variant->workspace_bytes == nullptr) return {};
  constexpr std::array<int32_t, 3> kTwoTokens = {0, 1, 2};
  const auto few = std::span(kTwoTokens);
  const int64_t all = variant->workspace_bytes(spec, cu_seqlens_q, cu_seqlens_k);
  const int64_t two = variant->workspace_bytes(spec, few, few);
  const int64_t one = variant->workspace_bytes(spec, few.first(2), few.first(2));
  if (all == Count::kMost || two == Count::kMost) return {.own = Count::kMost};
  const int64_t shared = std::clamp<int64_t>(one - (two - one), 0, one);
  return {.own = std::max<int64_t>(0, all - shared), .shared = shared};
}

// The need of one run of a kernel over a request's tensors.
MemoryNeed MemoryForecast::RunOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                 std::span<const int32_t> cu_seqlens_k) const {
  MemoryNeed memory = WorkspaceOf(spec, cu_seqlens_q, cu_seqlens_k);
  const int64_t queries = cu_seqlens_q.back();
  Count own = memory.own;
  Count shared = memory.shared;
  if (copies_) {
    own += TensorBytes(spec, queries, cu_seqlens_k.back());
    shared += kBlocksOfBatch;
  } else {
    own += Count(static_cast<int64_t>(cu_seqlens_q.size())) * kListsOfSequence +
           Count(queries) * kListsOfToken;
    shared += kListsOfBatch;
  }
  return {.own = own.value(), .shared = shared.value()};
}

MemoryNeed MemoryForecast::Of(const Plan& plan, const attention::Resolved& resolved) const {
  const std::vector<int32_t>& queries = resolved.cu_seqlens_q;
  const std::vector<int32_t>& keys = resolved.cu_seqlens_k;
  Spec spec = resolved.spec;
  MemoryNeed memory;
  if (!plan.automatic()) memory = RunOf(spec, queries, keys);
  for (const attention::Candidate& candidate : plan.candidates()) {
    spec.kernel = candidate.kernel;
    memory = Most(memory, RunOf(spec, queries, keys));
  }
  if (plan.probe_rows() == 0) return memory;
  spec.kernel = Vanilla{};
  return Most(memory, RunOf(spec, attention::OffsetsOfRows(queries, plan.probe_rows()), keys));
}

// The need of an encoder's attention, whose layers run one after another.
MemoryNeed MemoryForecast::LayersOf(const LoadedModel& model, const Kernel& kernel,
                                    std::span<const int32_t> cu_seqlens) const {
  MemoryNeed workspace;
  for (const encoder::AttentionLayers& alike : model.encoder->attention(kernel)) {
    workspace = Most(workspace, WorkspaceOf(alike.spec, cu_seqlens, cu_seqlens));
  }
  return workspace;
}

MemoryNeed MemoryForecast::Of(const LoadedModel& model, const Kernel& kernel,
                              const EncodeRequest& request,
                              std::span<const int32_t> cu_seqlens) const {
  const ModelInfo& info = model.info;
  const int64_t tokens = cu_seqlens.back();
  const auto sequences = static_cast<int64_t>(cu_seqlens.size()) - 1;
  const MemoryNeed workspace = LayersOf(model, kernel, cu_seqlens);
  const encoder::Activations activations = model.encoder->activations();
  // If the prompt is not pooled, each sequence has a span.
  const auto ranges = static_cast<int64_t>(request.spans.ranges.size());
  const bool leaves_out =
      !info.prompts.pooled && ranges == 0 && !encoder::PromptTextOf(request, info.prompts).empty();
  const std::span<const EncodeOutput> outputs = encoder::OutputsOf(request, info);
  const int64_t spans = !encoder::Pools(outputs) ? 0 : leaves_out ? sequences : ranges;
  const Count rows = activations.Of(tokens, sequences, outputs, spans);
  Count own = rows + workspace.own;
  Count shared = activations.batch() + workspace.shared;
  if (copies_) {
    // Kernels return rows in their own tensor, and embeddings are copied to the device.
    const std::vector<encoder::AttentionLayers> layers = model.encoder->attention(kernel);
    if (!layers.empty()) {
      const attention::Spec& layer = layers.front().spec;
      own +=
          Count(tokens) * layer.heads * layer.value_dim * static_cast<int64_t>(SizeOf(info.dtype));
    }
    if (const auto* given = std::get_if<EmbeddingInput>(&request.input)) {
      own += Count(tokens) * info.hidden_size * static_cast<int64_t>(SizeOf(given->values.dtype));
    }
    shared += kBlocksOfBatch;
  } else {
    own += Count(sequences) * kListsOfSequence + Count(tokens) * kListsOfToken;
    shared += kListsOfBatch;
  }
  return {.own = own.value(), .shared = shared.value(), .activations = rows.value()};
}

}  // namespace castor
