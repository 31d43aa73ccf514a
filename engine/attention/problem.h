// An attention problem as kernels see it: ragged sequences behind raw pointers.
//
// Shapes: query [tokens, heads, head_dim], key [key_tokens, kv_heads, head_dim], value [key_tokens,
// kv_heads, value_dim], output [tokens, heads, value_dim]. Neighbouring heads share the keys and
// values of one (Ainslie et al. 2023, arXiv 2305.13245), or kv_heads is heads. Heads are contiguous
// inside a token; tokens may be further apart than that (the encoder's fused query-key-value rows),
// hence the strides. Values may lie in the keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "engine/base/dtype.h"
#include "engine/kernels/count.h"
#include "engine/request.h"

namespace castor::attention {

using kernels::Count;

inline Window SymmetricWindow(int64_t reach) { return {.left = reach, .right = reach}; }

// The positions of a sequence's queries, counted from its first key: query i is where key i + shift
// is. A window never hides the first `visible` keys on its left.
struct Place {
  int64_t shift = 0;
  int64_t visible = 0;
};

// Biases that depend on the positions p_q of a score's query and p_k of its key. The scaled score
// of head h gets
//   table[h][clamp(p_k - p_q, -reach, reach) + reach] - slopes[h] * |p_q - p_k|
// The table holds MPNet's buckets, the slopes are ALiBi's. Both are float32 for all types of
// tensors, in the memory of the device that runs, owned by the model or the request.
struct PositionBias {
  const float* table = nullptr;   // [heads, 2 * reach + 1]
  int64_t reach = -1;             // -1: there is no table
  const float* slopes = nullptr;  // [heads], or nullptr: zeros

  bool any() const { return reach >= 0 || slopes != nullptr; }
};

// The parameters that all sequences of a launch share. Requests with equal specs may share a batch.
struct Spec {
  DType dtype = DType::kFloat32;  // of query, key, value and output
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  double softmax_scale = 0;
  Kernel kernel = Vanilla{};  // never Automatic
  int64_t surrogates = 0;     // Cast: N_c, how many surrogate tokens a layer has

  Window window = {};
  PositionBias bias = {};

  bool log_sum_exp = false;  // problems have Problem::log_sum_exp to be written

  int64_t kv_heads = 0;              // heads of key and value; divides `heads`
  bool value_is_key_prefix = false;  // a value is the first value_dim elements of its key

  double softcap = 0;          // c > 0: scaled scores s become c tanh(s / c), before any bias
  bool placed = false;         // problems have Problem::places
  int64_t key_bias_heads = 0;  // of Problem::key_bias: 1 or `kv_heads`; 0: there is none

  // The number of neighbouring heads that read the same keys and values: head h reads those of
  // h / group().
  int64_t group() const { return heads / kv_heads; }

  // Elements of a token's keys, and of its values where they are a tensor of their own.
  int64_t key_row() const { return kv_heads * head_dim; }
  int64_t value_row() const { return value_is_key_prefix ? 0 : kv_heads * value_dim; }

  // Problem's strides of values in tensors without gaps.
  int64_t value_stride() const { return value_is_key_prefix ? key_row() : value_row(); }
  int64_t value_head_stride() const { return value_is_key_prefix ? head_dim : value_dim; }

  // True if scores depend on positions and not on the rows alone. Kernels whose queries share
  // scores cannot run it.
  bool positional() const { return window.any() || bias.any(); }
};

// A CAST layer's further inputs, in the memory of the device that runs.
struct CastInputs {
  const std::byte* surrogates = nullptr;  // [layers, N_c, heads, head_dim], the spec's dtype
  const float* gate = nullptr;            // phi, [tokens] over all sequences
  // The layer of each sequence's surrogates, host memory; empty: all use the first.
  std::span<const int32_t> layer_of_sequence;

  int64_t layer(int64_t sequence) const {
    return layer_of_sequence.empty() ? 0 : layer_of_sequence[sequence];
  }
};

// Ragged sequences that one run of a kernel computes, packed one after another, and where their
// rows go. A kernel computes each sequence by itself, so it does not matter whose they are: they
// may come from one request, from all that a model runs together, or from the requests that the GPU
// device packed into one problem (cuda/packing/packed_batch.h). Pointers are to the memory of the
// device that runs, except in a batch passed to Device::Launch; strides count elements from one
// token to the next.
struct Problem {
  const std::byte* query = nullptr;
  const std::byte* key = nullptr;
  const std::byte* value = nullptr;
  std::byte* output = nullptr;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;
  int64_t value_head_stride = 0;  // elements from one head's value to the next of its token

  // The positions of each sequence's queries, host memory. Empty: the last query is where the last
  // key is.
  std::span<const Place> places;

  // [key_tokens, Spec::key_bias_heads] without gaps, added to the scores of each key after a
  // softcap; -Inf hides it. Or nullptr.
  const float* key_bias = nullptr;

  // [tokens, heads] without gaps, for ln sum_j exp(score_j) of each row; nullptr: not wanted.
  float* log_sum_exp = nullptr;

  // Offsets of the sequences' first tokens, and the total: size sequences + 1, host memory.
  std::span<const int32_t> cu_seqlens_q;
  std::span<const int32_t> cu_seqlens_k;

  CastInputs cast;  // for kernel Cast

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens_q.size()) - 1; }
  int64_t query_tokens() const { return cu_seqlens_q.back(); }
  int64_t key_tokens() const { return cu_seqlens_k.back(); }

  Place PlaceOf(const Spec& spec, int64_t sequence) const {
    if (!places.empty()) return places[sequence];
    const int64_t queries = cu_seqlens_q[sequence + 1] - cu_seqlens_q[sequence];
    const int64_t keys = cu_seqlens_k[sequence + 1] - cu_seqlens_k[sequence];
    return {.shift = keys - queries, .visible = spec.window.always_visible};
  }
};

// The bias of key `token` in a head; the next token's is key_bias_heads further.
inline const float* KeyBiasOf(const Spec& spec, const Problem& problem, int64_t token,
                              int64_t head) {
  return problem.key_bias + token * spec.key_bias_heads +
         (spec.key_bias_heads > 1 ? head / spec.group() : 0);
}

// The parameters of both clustered kernels; nullptr for the others.
inline const Clustered* ClusteringOf(const Kernel& kernel) {
  if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) return improved;
  return std::get_if<Clustered>(&kernel);
}

// True if a query weighs the keys that are not its cluster's top keys by itself.
inline bool WeighsRest(const Kernel& kernel) {
  const auto* improved = std::get_if<ImprovedClustered>(&kernel);
  return improved != nullptr && improved->rest_mass == ImprovedClustered::RestMass::kQuery;
}

inline bool IsCausal(const Spec& spec) {
  const auto* vanilla = std::get_if<Vanilla>(&spec.kernel);
  return vanilla != nullptr && vanilla->causal;
}

// The path on the wire of the first parameter by which a clustered kernel is not the one that its
// paper defines, such as "improved_clustered.rest_mass"; empty if there is none. Not every device
// has kernels for these.
inline std::string_view OptionBeyondThePaper(const Kernel& kernel) {
  const auto* improved = std::get_if<ImprovedClustered>(&kernel);
  const Clustered* clustering = ClusteringOf(kernel);
  if (clustering != nullptr && clustering->clustering != Clustered::Clustering::kHash) {
    return improved != nullptr ? "improved_clustered.clustering" : "clustered.clustering";
  }
  if (WeighsRest(kernel)) return "improved_clustered.rest_mass";
  return "";
}

// The kernel with these: the queries' own clusters, with their usual updates; own rest mass; and
// with 64 top keys or more, 32 groups of the rest.
inline ImprovedClustered WithOptionsBeyondThePaper(ImprovedClustered kernel) {
  kernel.clustering = Clustered::Clustering::kQuerySpace;
  kernel.iterations = DefaultIterations(kernel.clustering);
  kernel.rest_mass = ImprovedClustered::RestMass::kQuery;
  kernel.rest_groups = kernel.topk >= 64 ? 32 : 1;
  return kernel;
}

}  // namespace castor::attention
