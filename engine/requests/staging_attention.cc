#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/attention/finite.h"
#include "engine/base/aligned.h"
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
  if (surrogates != nullptr) input_bytes += static_cast<size_t>(surrogates->size_bytes());
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
  if (request.check_finite) {
    if (auto status = CheckAllFinite(request, problem); !status.ok()) return status;
  }

  problem.cu_seqlens_q = resolved.cu_seqlens_q;
  problem.cu_seqlens_k = resolved.cu_seqlens_k;
  return absl::OkStatus();
}

}  // namespace castor
