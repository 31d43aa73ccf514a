#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attention/finite.h"
#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/requests/staging.h"
#include "engine/tensor_reader.h"

namespace castor {
namespace {

absl::Status CopyAll(const TensorInput& tensor, std::string_view field, std::byte* out) {
  return TensorReader(tensor, field).Read(static_cast<size_t>(tensor.size_bytes()), out);
}

absl::Status CheckAllFinite(const AttentionRequest& request, const attention::Problem& problem) {
  struct Input {
    const TensorInput& tensor;
    const void* data;
    const char* field;
  };
  std::vector<Input> inputs = {{request.query, problem.query, "query"},
                               {request.key, problem.key, "key"}};
  if (!request.value_is_key_prefix) inputs.push_back({request.value, problem.value, "value"});
  if (const auto* cast = std::get_if<Cast>(&request.kernel)) {
    inputs.push_back({cast->gate, problem.cast.gate, "cast.gate"});
    if (const auto* surrogates = std::get_if<TensorInput>(&cast->surrogates)) {
      inputs.push_back({*surrogates, problem.cast.surrogates, "cast.surrogate_tokens"});
    }
  }
  for (const Input& input : inputs) {
    const auto size = static_cast<size_t>(input.tensor.size_bytes());
    auto status = attention::CheckFinite(
        input.tensor.dtype, {static_cast<const std::byte*>(input.data), size}, input.field);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The elements of key_bias must be finite, except -Inf, which hides a key.
absl::Status CheckKeyBias(std::span<const float> biases) {
  for (size_t i = 0; i < biases.size(); ++i) {
    if (std::isnan(biases[i]) || biases[i] == std::numeric_limits<float>::infinity()) {
      return InvalidField(Reason::kNonFiniteInput, "key_bias",
                          "element " + std::to_string(i) + " is NaN or +Inf");
    }
  }
  return absl::OkStatus();
}

// The offsets of the biases of scores, which follow each other in the request's input.
struct StagedBiases {
  StagedBiases(const AttentionRequest& request, size_t begin)
      : slopes(begin),
        table(slopes + AlignUp(request.positions.alibi_slopes.size() * sizeof(float))),
        key_bias(table + AlignUp(BytesOf(request.positions.relative_bias))),
        end(key_bias + BytesOf(request.key_bias)) {}

  static size_t BytesOf(const std::optional<TensorInput>& tensor) {
    return tensor.has_value() ? static_cast<size_t>(tensor->size_bytes()) : 0;
  }

  size_t slopes;
  size_t table;
  size_t key_bias;
  size_t end;
};

absl::Status StageBiases(const AttentionRequest& request, const StagedBiases& at,
                         AttentionWork* work) {
  std::byte* const to = work->input.data();
  attention::PositionBias& bias = work->resolved.spec.bias;
  const std::vector<float>& slopes = request.positions.alibi_slopes;
  if (!slopes.empty()) {
    std::memcpy(to + at.slopes, slopes.data(), slopes.size() * sizeof(float));
    bias.slopes = reinterpret_cast<const float*>(to + at.slopes);
  }
  if (request.positions.relative_bias.has_value()) {
    constexpr std::string_view kField = "positions.relative_bias";
    const TensorInput& table = *request.positions.relative_bias;
    if (absl::Status s = CopyAll(table, kField, to + at.table); !s.ok()) return s;
    const std::span<const std::byte> copied(to + at.table, StagedBiases::BytesOf(table));
    if (absl::Status s = attention::CheckFinite(DType::kFloat32, copied, kField); !s.ok()) return s;
    bias.table = reinterpret_cast<const float*>(to + at.table);
    // The sum of two large biases could overflow to -Inf, and a row would seem to see no key.
    const std::span<const float> values(bias.table, copied.size() / sizeof(float));
    const auto is_large = [](float x) { return std::abs(x) > attention::kMostBias; };
    if (request.key_bias.has_value() && std::any_of(values.begin(), values.end(), is_large)) {
      return InvalidField(kField, "must be within -1e30..1e30 if there is a key_bias");
    }
  }
  if (!request.key_bias.has_value()) return absl::OkStatus();
  absl::Status copied = CopyAll(*request.key_bias, "key_bias", to + at.key_bias);
  if (!copied.ok()) return copied;
  work->problem.key_bias = reinterpret_cast<const float*>(to + at.key_bias);
  return CheckKeyBias(
      {work->problem.key_bias, StagedBiases::BytesOf(request.key_bias) / sizeof(float)});
}

}  // namespace

absl::Status StageAttention(const AttentionRequest& request, HostPool& pool, AttentionWork* work) {
  const attention::Resolved& resolved = work->resolved;
  const attention::Spec& spec = resolved.spec;
  const auto query_bytes = static_cast<size_t>(request.query.size_bytes());
  const auto key_bytes = static_cast<size_t>(request.key.size_bytes());
  const auto value_bytes = static_cast<size_t>(request.value.size_bytes());
  const size_t key_at = AlignUp(query_bytes);
  const size_t value_at = key_at + AlignUp(key_bytes);
  size_t input_bytes = value_at + AlignUp(value_bytes);
  const auto* cast = std::get_if<Cast>(&request.kernel);
  const size_t gate_at = input_bytes;
  if (cast != nullptr) input_bytes += AlignUp(static_cast<size_t>(cast->gate.size_bytes()));
  const size_t surrogates_at = input_bytes;
  const TensorInput* surrogates =
      cast == nullptr ? nullptr : std::get_if<TensorInput>(&cast->surrogates);
  if (surrogates != nullptr) {
    input_bytes += AlignUp(static_cast<size_t>(surrogates->size_bytes()));
  }
  const StagedBiases biases(request, input_bytes);
  input_bytes = biases.end;
  const size_t output_bytes = static_cast<size_t>(resolved.query_tokens) *
                              static_cast<size_t>(spec.heads * spec.value_dim) * SizeOf(spec.dtype);

  auto input = pool.Allocate(input_bytes);
  if (!input.ok()) return input.status();
  auto output = pool.Allocate(output_bytes);
  if (!output.ok()) return output.status();

  work->input = *std::move(input);
  work->output = *std::move(output);
  if (spec.log_sum_exp) {
    auto log_sum_exp =
        pool.Allocate(static_cast<size_t>(resolved.query_tokens * spec.heads) * sizeof(float));
    if (!log_sum_exp.ok()) return log_sum_exp.status();
    work->log_sum_exp = *std::move(log_sum_exp);
    work->problem.log_sum_exp = reinterpret_cast<float*>(work->log_sum_exp.data());
  }
  std::byte* const to = work->input.data();
  if (absl::Status s = CopyAll(request.query, "query", to); !s.ok()) return s;
  if (absl::Status s = CopyAll(request.key, "key", to + key_at); !s.ok()) return s;
  if (!spec.value_is_key_prefix) {
    if (absl::Status s = CopyAll(request.value, "value", to + value_at); !s.ok()) return s;
  }

  attention::Problem& problem = work->problem;
  problem.query = work->input.data();
  problem.key = work->input.data() + key_at;
  problem.value = spec.value_is_key_prefix ? problem.key : work->input.data() + value_at;
  problem.output = work->output.data();
  problem.query_stride = spec.heads * spec.head_dim;
  problem.key_stride = spec.key_row();
  problem.value_stride = spec.value_stride();
  problem.value_head_stride = spec.value_head_stride();
  problem.output_stride = spec.heads * spec.value_dim;
  if (cast != nullptr) {
    if (absl::Status s = CopyAll(cast->gate, "cast.gate", to + gate_at); !s.ok()) return s;
    problem.cast.gate = reinterpret_cast<const float*>(work->input.data() + gate_at);
    if (surrogates != nullptr) {
      absl::Status copied = CopyAll(*surrogates, "cast.surrogate_tokens", to + surrogates_at);
      if (!copied.ok()) return copied;
      problem.cast.surrogates = work->input.data() + surrogates_at;
    } else {
      problem.cast.surrogates = resolved.cast_layer->data(spec.dtype);
    }
  }
  if (absl::Status s = StageBiases(request, biases, work); !s.ok()) return s;
  if (request.check_finite) {
    if (auto status = CheckAllFinite(request, problem); !status.ok()) return status;
  }

  problem.cu_seqlens_q = resolved.cu_seqlens_q;
  problem.cu_seqlens_k = resolved.cu_seqlens_k;
  problem.places = resolved.places;
  return absl::OkStatus();
}

}  // namespace castor
