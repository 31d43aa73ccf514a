#include "server/codec/convert.h"

#include <string>

#include "engine/base/error.h"
#include "engine/kernel_parameters.h"

namespace castor::server {
namespace {

constexpr size_t kMaxIdBytes = 256;

std::string Join(std::string_view path, std::string_view field) {
  return std::string(path) + "." + std::string(field);
}

// Zero keeps the default that *out holds.
void Replace(int32_t value, int32_t* out) {
  if (value != 0) *out = value;
}

// `kernel`: the field's name, clustered or improved_clustered.
absl::Status ConvertClustering(const wire::Clustered& from, std::string_view kernel,
                               Clustered* out) {
  Replace(from.clusters, &out->clusters);
  absl::Status status =
      ConvertEnum(kQueryClusterings, from.clustering, Join(kernel, "clustering"), &out->clustering);
  if (!status.ok()) return status;
  if (out->clustering != Clustered::Clustering::kHash) {
    // Checked here: the engine's parameters hold defaults and do not show what was given.
    if (from.bits != 0) return InvalidField(Join(kernel, "bits"), kOnlyHash);
    if (from.hash_bias.has_value()) return InvalidField(Join(kernel, "hash_bias"), kOnlyHash);
  }
  out->iterations = DefaultIterations(out->clustering);
  Replace(from.iterations, &out->iterations);
  Replace(from.bits, &out->bits);
  out->hash_bias = from.hash_bias.value_or(out->hash_bias);
  out->seed = from.seed;
  return absl::OkStatus();
}

absl::Status ConvertImproved(const wire::ImprovedClustered& from, ImprovedClustered* out) {
  constexpr std::string_view kKernel = "improved_clustered";
  if (absl::Status s = ConvertClustering(from, kKernel, out); !s.ok()) return s;
  Replace(from.topk, &out->topk);
  Replace(from.rest_groups, &out->rest_groups);
  return ConvertEnum(kRestMasses, from.rest_mass, Join(kKernel, "rest_mass"), &out->rest_mass);
}

absl::Status ConvertCastTensors(const wire::Cast& from, CastTensorsFrom tensors,
                                RequestRegions& regions, Cast* out) {
  const bool required = tensors == CastTensorsFrom::kRequest;
  if (const auto* layer = std::get_if<wire::Text>(&from.surrogates)) {
    out->surrogates = std::string(*layer);
  } else if (const auto* tokens = std::get_if<wire::Tensor>(&from.surrogates)) {
    absl::Status status = ConvertTensor(*tokens, "cast.surrogate_tokens", regions,
                                        &out->surrogates.emplace<TensorInput>());
    if (!status.ok()) return status;
  } else if (required) {
    return InvalidField("cast.surrogate_tokens", "missing: give surrogate_tokens or layer");
  }
  if (!from.gate.has_value() && !required) return absl::OkStatus();
  return ConvertTensor(from.gate, "cast.gate", regions, &out->gate);
}

absl::Status ConvertCast(const wire::Cast& from, CastTensorsFrom tensors, RequestRegions& regions,
                         Cast* out) {
  if (absl::Status s = ConvertCastTensors(from, tensors, regions, out); !s.ok()) return s;
  Replace(from.cluster_size, &out->cluster_size);
  absl::Status status =
      ConvertEnum(kClusterings, from.clustering, "cast.clustering", &out->clustering);
  status.Update(ConvertEnum(kAttentionFunctions, from.attention_function, "cast.attention_function",
                            &out->attention_function));
  status.Update(ConvertEnum(kGateTemperatures, from.gate_temperature, "cast.gate_temperature",
                            &out->gate_temperature));
  status.Update(ConvertEnum(kHeadClusterings, from.head_clustering, "cast.head_clustering",
                            &out->head_clustering));
  return status;
}

absl::Status ConvertAutomatic(const wire::Automatic& from, Automatic* out) {
  for (size_t i = 0; i < from.allowed.size(); ++i) {
    const std::optional<KernelName> name = FromWire(kKernelNames, from.allowed[i]);
    if (!name.has_value()) {
      return UnknownValue("automatic.allowed[" + std::to_string(i) + "]", from.allowed[i]);
    }
    out->allowed.push_back(*name);
  }
  out->max_relative_error = from.max_relative_error;
  return absl::OkStatus();
}

}  // namespace

absl::Status UnknownValue(std::string_view field, int32_t value) {
  return InvalidField(field, "unknown value " + std::to_string(value));
}

absl::Status ConvertRequestId(wire::Text request_id, CallContext* out) {
  if (request_id.size() > kMaxIdBytes) {
    return InvalidField("request_id", "longer than " + std::to_string(kMaxIdBytes) +
                                          " bytes: " + std::to_string(request_id.size()));
  }
  out->request_id = request_id;
  return absl::OkStatus();
}

absl::Status ConvertPriority(int32_t priority, CallContext* out) {
  return ConvertEnum(kPriorities, priority, "priority", &out->priority);
}

absl::Status ConvertTimeout(int32_t timeout_ms, std::optional<std::chrono::milliseconds>* out) {
  if (timeout_ms < 0) return InvalidField("timeout_ms", "is negative");
  if (timeout_ms > 0) *out = std::chrono::milliseconds(timeout_ms);
  return absl::OkStatus();
}

absl::Status ConvertTensor(const wire::Tensor& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out) {
  if (tensor.dtype == v1::DATA_TYPE_UNSPECIFIED) {
    return InvalidField(Join(field, "dtype"), "missing");
  }
  const std::optional<DType> dtype = FromWire(kDTypes, tensor.dtype);
  if (!dtype.has_value()) return UnknownValue(Join(field, "dtype"), tensor.dtype);
  out->dtype = *dtype;
  out->shape = tensor.shape;
  if (const auto* raw = std::get_if<wire::Bytes>(&tensor.data)) {
    out->pieces = *raw;
    return absl::OkStatus();
  }
  if (const auto* ref = std::get_if<wire::SharedMemoryRef>(&tensor.data)) {
    return regions.Resolve(*ref, Join(field, "shared_memory"), &out->file.emplace());
  }
  return InvalidField(Join(field, "raw"), "missing");
}

absl::Status ConvertTensor(const std::optional<wire::Tensor>& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out) {
  if (!tensor.has_value()) return InvalidField(field, "missing");
  return ConvertTensor(*tensor, field, regions, out);
}

// The alternatives: none, the kernels and Automatic.
static_assert(std::variant_size_v<wire::Kernel> == 2 + kKernelCount, "a kernel is not converted");

absl::Status ConvertKernel(const wire::Kernel& kernel, CastTensorsFrom tensors,
                           RequestRegions& regions, std::optional<Kernel>* out) {
  if (const auto* vanilla = std::get_if<wire::Vanilla>(&kernel)) {
    *out = Vanilla{.causal = vanilla->causal};
  } else if (const auto* clustered = std::get_if<wire::Clustered>(&kernel)) {
    Clustered parameters;
    absl::Status s = ConvertClustering(*clustered, "clustered", &parameters);
    if (!s.ok()) return s;
    *out = parameters;
  } else if (const auto* improved = std::get_if<wire::ImprovedClustered>(&kernel)) {
    ImprovedClustered parameters;
    if (absl::Status s = ConvertImproved(*improved, &parameters); !s.ok()) return s;
    *out = parameters;
  } else if (const auto* cast = std::get_if<wire::Cast>(&kernel)) {
    Cast parameters;
    if (absl::Status s = ConvertCast(*cast, tensors, regions, &parameters); !s.ok()) return s;
    *out = std::move(parameters);
  } else if (const auto* automatic = std::get_if<wire::Automatic>(&kernel)) {
    Automatic parameters;
    if (absl::Status s = ConvertAutomatic(*automatic, &parameters); !s.ok()) return s;
    *out = std::move(parameters);
  }
  return absl::OkStatus();
}

}  // namespace castor::server
