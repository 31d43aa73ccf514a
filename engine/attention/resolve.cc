#include "engine/attention/resolve.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "engine/attention/shapes.h"
#include "engine/base/error.h"

namespace castor::attention {
namespace {

constexpr int32_t kMaxFidelityRows = 1024;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // offsets are int32

// Offsets of `sequences` sequences of `length` tokens each; their total must fit int32.
std::vector<int32_t> EqualOffsets(int64_t sequences, int64_t length) {
  std::vector<int32_t> offsets(sequences + 1);
  for (int64_t i = 0; i <= sequences; ++i) offsets[i] = static_cast<int32_t>(i * length);
  return offsets;
}

// Offsets of sequences of the given lengths, which must add up to `tokens`.
absl::StatusOr<std::vector<int32_t>> Offsets(std::span<const int64_t> lengths, int64_t tokens,
                                             std::string_view lengths_field,
                                             std::string_view tensor) {
  std::vector<int32_t> offsets;
  offsets.reserve(lengths.size() + 1);
  offsets.push_back(0);
  int64_t total = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1) return InvalidField(FieldAt(lengths_field, i), "must be at least 1");
    if (lengths[i] > tokens - total) {
      return InvalidField(
          FieldAt(lengths_field, i),
          "reaches beyond the " + std::to_string(tokens) + " tokens of " + std::string(tensor));
    }
    total += lengths[i];
    offsets.push_back(static_cast<int32_t>(total));
  }
  if (total != tokens) {
    return InvalidField(lengths_field, "add up to " + std::to_string(total) + ", but " +
                                           std::string(tensor) + " has " + std::to_string(tokens) +
                                           " tokens");
  }
  return offsets;
}

absl::Status CheckTokenTotal(int64_t batch, int64_t tokens, std::string_view tensor) {
  const std::optional<int64_t> total = CheckedMultiply(batch, tokens);
  if (total && *total <= kMaxTokens) return absl::OkStatus();
  return InvalidField(std::string(tensor) + ".shape", "holds more than 2^31 - 1 tokens");
}

absl::Status TooManySequences(std::string_view field, int64_t sequences, int64_t most) {
  return InvalidField(field, std::to_string(sequences) + " sequences, at most " +
                                 std::to_string(most) + " are allowed in one request");
}

// Fills in the offsets and totals of `resolved`.
absl::Status ResolveSequences(const AttentionRequest& request, const Geometry& geometry,
                              int64_t max_sequences, Resolved* resolved) {
  const int64_t batch = geometry.batch;
  if (absl::Status s = CheckTokenTotal(batch, geometry.query_tokens, "query"); !s.ok()) return s;
  if (absl::Status s = CheckTokenTotal(batch, geometry.key_tokens, "key"); !s.ok()) return s;
  resolved->query_tokens = batch * geometry.query_tokens;
  resolved->key_tokens = batch * geometry.key_tokens;

  const std::vector<int64_t>& query_lengths = request.query_lengths;
  const std::vector<int64_t>& key_lengths = request.key_lengths;
  if (!geometry.packed) {
    constexpr std::string_view kProblem = "only packed tensors of three dimensions have lengths";
    if (!query_lengths.empty()) return InvalidField("query_lengths", kProblem);
    if (!key_lengths.empty()) return InvalidField("key_lengths", kProblem);
    if (batch > max_sequences) return TooManySequences("query.shape[0]", batch, max_sequences);
    resolved->cu_seqlens_q = EqualOffsets(batch, geometry.query_tokens);
    resolved->cu_seqlens_k = EqualOffsets(batch, geometry.key_tokens);
    return absl::OkStatus();
  }

  const int64_t sequences = query_lengths.empty() ? 1 : static_cast<int64_t>(query_lengths.size());
  if (sequences > max_sequences) return TooManySequences("query_lengths", sequences, max_sequences);
  if (!key_lengths.empty() && static_cast<int64_t>(key_lengths.size()) != sequences) {
    return InvalidField("key_lengths", "has " + std::to_string(key_lengths.size()) +
                                           " entries for " + std::to_string(sequences) +
                                           " query sequences");
  }
  const std::vector<int64_t> one_query = {geometry.query_tokens};
  const std::vector<int64_t> one_key = {geometry.key_tokens};
  const auto& queries = query_lengths.empty() ? one_query : query_lengths;
  const auto& same = query_lengths.empty() ? one_key : query_lengths;
  const auto& keys = key_lengths.empty() ? same : key_lengths;

  auto query_offsets = Offsets(queries, geometry.query_tokens, "query_lengths", "query");
  if (!query_offsets.ok()) return query_offsets.status();
  auto key_offsets = Offsets(keys, geometry.key_tokens, "key_lengths", "key");
  if (!key_offsets.ok()) {
    if (!key_lengths.empty()) return key_offsets.status();
    return InvalidField("key_lengths",
                        "is empty, so query_lengths apply to key too; they add up to " +
                            std::to_string(geometry.query_tokens) + ", but key has " +
                            std::to_string(geometry.key_tokens) + " tokens");
  }
  resolved->cu_seqlens_q = *std::move(query_offsets);
  resolved->cu_seqlens_k = *std::move(key_offsets);
  return absl::OkStatus();
}

absl::Status ResolveScale(const AttentionRequest& request, const Geometry& geometry, Spec* spec) {
  if (!request.softmax_scale) {
    spec->softmax_scale = 1 / std::sqrt(static_cast<double>(geometry.head_dim));
    return absl::OkStatus();
  }
  // Kernels multiply in float32, where a finite double can be infinite. NaN fails the comparison.
  if (!(std::abs(*request.softmax_scale) <= std::numeric_limits<float>::max())) {
    return InvalidField("softmax_scale", "must be finite, also when rounded to float32");
  }
  spec->softmax_scale = *request.softmax_scale;
  return absl::OkStatus();
}

bool SameLengths(const Resolved& resolved) {
  return resolved.cu_seqlens_q == resolved.cu_seqlens_k;
}

// Checks the parts of a kernel's contract that depend on the problem's shape: most take any. Cast
// also fills in the number of its surrogate tokens and the layer, and adds its tensors' bytes.
template <typename Parameters>
absl::Status ResolveKernel(const Parameters&, FindCastLayer, Resolved*, int64_t*) {
  return absl::OkStatus();
}

absl::Status CheckCastSurrogates(const TensorInput& surrogates, const Spec& spec, int64_t* bytes) {
  constexpr std::string_view kField = "cast.surrogate_tokens";
  if (absl::Status s = CheckDType(surrogates, kField, spec.dtype); !s.ok()) return s;
  if (surrogates.shape.size() != 3) {
    return InvalidField(std::string(kField) + ".shape", "must be [N_c, heads, head_dim]");
  }
  absl::Status status = CheckTensor(surrogates, kField, bytes);
  status.Update(CheckDimension(surrogates, kField, 1, spec.heads, "query's heads"));
  status.Update(CheckDimension(surrogates, kField, 2, spec.head_dim, "query's head_dim"));
  return status;
}

absl::Status CheckCastGate(const TensorInput& gate, const Resolved& resolved, int64_t* bytes) {
  if (absl::Status s = CheckDType(gate, "cast.gate", DType::kFloat32); !s.ok()) return s;
  if (gate.shape.size() != 1) return InvalidField("cast.gate.shape", "must be [tokens]");
  if (absl::Status s = CheckTensor(gate, "cast.gate", bytes); !s.ok()) return s;
  return CheckDimension(gate, "cast.gate", 0, resolved.query_tokens, "the tokens of query");
}

absl::Status CheckCastLayer(const CastLayer& layer, std::string_view name, const Spec& spec) {
  if (layer.heads() == spec.heads && layer.head_dim() == spec.head_dim) return absl::OkStatus();
  return InvalidField("cast.layer", std::string(name) + " has " + std::to_string(layer.heads()) +
                                        " heads of " + std::to_string(layer.head_dim()) +
                                        ", query has " + std::to_string(spec.heads) + " of " +
                                        std::to_string(spec.head_dim));
}

// Every token needs a place, so the clusters must hold the longest sequence.
absl::Status CheckCastPlaces(const Cast& kernel, const Resolved& resolved) {
  if (kernel.clustering != Cast::Clustering::kSingleAssignmentTopK || kernel.cluster_size == 0) {
    return absl::OkStatus();
  }
  const std::optional<int64_t> places =
      CheckedMultiply(resolved.spec.surrogates, kernel.cluster_size);
  const std::vector<int32_t>& offsets = resolved.cu_seqlens_q;
  for (size_t i = 0; places && i + 1 < offsets.size(); ++i) {
    const int64_t tokens = offsets[i + 1] - offsets[i];
    if (tokens > *places) {
      return InvalidField("cast.cluster_size", "single assignment needs a place for every token: " +
                                                   std::to_string(*places) + " places for the " +
                                                   std::to_string(tokens) + " tokens of sequence " +
                                                   std::to_string(i));
    }
  }
  return absl::OkStatus();
}

absl::Status ResolveKernel(const Cast& kernel, FindCastLayer find_layer, Resolved* resolved,
                           int64_t* bytes) {
  if (!SameLengths(*resolved)) {
    return InvalidField("cast",
                        "is self-attention: query and key sequences must have equal lengths");
  }
  if (absl::Status s = CheckCastGate(kernel.gate, *resolved, bytes); !s.ok()) return s;
  if (const auto* surrogates = std::get_if<TensorInput>(&kernel.surrogates)) {
    if (absl::Status s = CheckCastSurrogates(*surrogates, resolved->spec, bytes); !s.ok()) return s;
    resolved->spec.surrogates = surrogates->shape[0];
  } else {
    const auto& name = std::get<std::string>(kernel.surrogates);
    if (name.empty()) {
      return InvalidField("cast.layer", "must name a model's layer, as MODEL/INDEX");
    }
    auto found = find_layer(name);
    if (!found.ok()) return found.status();
    const CastLayer& layer = **found;
    if (absl::Status s = CheckCastLayer(layer, name, resolved->spec); !s.ok()) return s;
    resolved->spec.surrogates = layer.surrogate_tokens();
    resolved->cast_layer = *std::move(found);
  }
  return CheckCastPlaces(kernel, *resolved);
}

absl::Status ResolveKernel(const Automatic&, FindCastLayer, Resolved*, int64_t*) {
  return MakeError(Reason::kInternal, "an automatic kernel was left unresolved");
}

absl::Status CheckAvailable(const Spec& spec, std::span<const Variant> variants) {
  if (FindVariant(variants, spec) != nullptr) return absl::OkStatus();
  if (absl::Status s = CheckOption(variants, spec); !s.ok()) return s;
  const KernelName name = NameOf(spec.kernel);
  const std::string label(NameOf(name));
  Spec without = spec;
  without.log_sum_exp = false;
  if (FindVariant(variants, without) != nullptr) {
    return MakeError(Reason::kKernelNotAvailable,
                     "return_log_sum_exp: the kernel " + label + " returns none on this device");
  }
  without.key_bias_heads = 0;
  if (FindVariant(variants, without) != nullptr) {
    return MakeError(Reason::kKernelNotAvailable,
                     "key_bias: the kernel " + label + " takes none on this device");
  }
  if (!HasKernel(variants, name)) {
    return MakeError(Reason::kNotServed, "the kernel " + label + " is not served yet");
  }
  return MakeError(Reason::kKernelNotAvailable,
                   "the kernel " + label + " does not run on this device for " +
                       std::string(NameOf(spec.dtype)) + " with head_dim " +
                       std::to_string(spec.head_dim) + " and value_dim " +
                       std::to_string(spec.value_dim));
}

// CAST mixes clusters and a summary of them: no softmax over keys is behind a row.
absl::Status CheckLogSumExp(const Kernel& kernel, double softmax_scale,
                            std::span<const int64_t> output_shape, int64_t* bytes) {
  constexpr double kMostScale = 1e18;  // times a score of 1e20: a float32
  if (std::holds_alternative<Cast>(kernel)) {
    return InvalidField("return_log_sum_exp", "the kernel cast returns none");
  }
  if (std::abs(softmax_scale) > kMostScale) {
    return InvalidField("softmax_scale",
                        "must be -1e18..1e18 with return_log_sum_exp, or it may overflow float32");
  }
  const std::optional<int64_t> rows =
      NumBytes(DType::kFloat32, output_shape.first(output_shape.size() - 1));
  const std::optional<int64_t> total = rows ? CheckedAdd(*bytes, *rows) : rows;
  if (!total) return InvalidField("query.shape", "gives a log_sum_exp too large to count");
  *bytes = *total;
  return absl::OkStatus();
}

void DropTensors(Kernel* kernel) {
  auto* cast = std::get_if<Cast>(kernel);
  if (cast == nullptr) return;
  cast->gate = {};
  if (std::holds_alternative<TensorInput>(cast->surrogates)) cast->surrogates = TensorInput{};
}

}  // namespace

absl::StatusOr<Resolved> Resolve(const AttentionRequest& request, std::span<const Variant> variants,
                                 FindCastLayer find_layer, int64_t max_sequences) {
  absl::StatusOr<Geometry> geometry = CheckTensors(request);
  if (!geometry.ok()) return geometry.status();

  Resolved resolved;
  Spec& spec = resolved.spec;
  spec.dtype = request.query.dtype;
  spec.heads = geometry->heads;
  spec.head_dim = geometry->head_dim;
  spec.value_dim = geometry->value_dim;
  spec.kv_heads = geometry->kv_heads;
  spec.value_is_key_prefix = request.value_is_key_prefix;
  if (absl::Status s = ResolveScale(request, *geometry, &spec); !s.ok()) return s;
  if (request.fidelity_rows < 0 || request.fidelity_rows > kMaxFidelityRows) {
    return InvalidField("fidelity_rows", "must be 0..1024");
  }
  if (absl::Status s = ResolveSequences(request, *geometry, max_sequences, &resolved); !s.ok()) {
    return s;
  }

  absl::StatusOr<Kernel> kernel = ChooseKernel(request.kernel);
  if (!kernel.ok()) return kernel.status();
  int64_t bytes = geometry->bytes;
  const absl::Status fits = std::visit(
      [&](const auto& chosen) { return ResolveKernel(chosen, find_layer, &resolved, &bytes); },
      *kernel);
  if (!fits.ok()) return fits;

  resolved.output_shape = request.query.shape;
  resolved.output_shape.back() = spec.value_dim;
  const std::optional<int64_t> output_bytes = NumBytes(spec.dtype, resolved.output_shape);
  const std::optional<int64_t> total =
      output_bytes ? CheckedAdd(bytes, *output_bytes) : output_bytes;
  if (!total) {
    return InvalidField(request.value_is_key_prefix ? "value_dim" : "value.shape",
                        "gives an output too large to count");
  }
  resolved.staging_bytes = *total;
  spec.log_sum_exp = request.return_log_sum_exp;
  if (spec.log_sum_exp) {
    absl::Status s =
        CheckLogSumExp(*kernel, spec.softmax_scale, resolved.output_shape, &resolved.staging_bytes);
    if (!s.ok()) return s;
  }

  spec.kernel = *std::move(kernel);
  DropTensors(&spec.kernel);
  if (absl::Status s = ResolveScores(request, *geometry, &resolved); !s.ok()) return s;
  if (absl::Status s = CheckAvailable(spec, variants); !s.ok()) return s;
  return resolved;
}

}  // namespace castor::attention
