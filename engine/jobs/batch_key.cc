#include "engine/jobs/batch_key.h"

#include <type_traits>

namespace castor {
namespace {

template <typename T>
void Append(std::string& key, const T& value) {
  // Types with padding would make equal values differ.
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendParameters(std::string& key, const Vanilla& kernel) { Append(key, kernel.causal); }

void AppendParameters(std::string& key, const Clustered& kernel) {
  Append(key, kernel.clusters);
  Append(key, kernel.iterations);
  Append(key, kernel.bits);
  Append(key, kernel.hash_bias);
  Append(key, kernel.seed);
}

void AppendParameters(std::string& key, const ImprovedClustered& kernel) {
  AppendParameters(key, static_cast<const Clustered&>(kernel));
  Append(key, kernel.topk);
}

void AppendParameters(std::string& key, const Cast& kernel) {
  Append(key, kernel.clustering);
  Append(key, kernel.cluster_size);
  Append(key, kernel.attention_function);
  Append(key, kernel.gate_temperature);
  Append(key, kernel.head_clustering);
  // Surrogate tokens of a layer are part of the launch; those that a request brings itself are not,
  // they travel with its problem.
  if (const auto* layer = std::get_if<std::string>(&kernel.surrogates)) key += *layer;
}

void AppendParameters(std::string& key, const Automatic& kernel) {
  for (KernelName name : kernel.allowed) Append(key, name);
  Append(key, kernel.max_relative_error);
}

void AppendKernel(std::string& key, const Kernel& kernel) {
  Append(key, kernel.index());
  std::visit([&key](const auto& parameters) { AppendParameters(key, parameters); }, kernel);
}

}  // namespace

std::string BatchKey(const attention::Spec& spec) {
  std::string key;
  key.reserve(64);
  key += 'a';
  Append(key, spec.dtype);
  Append(key, spec.heads);
  Append(key, spec.head_dim);
  Append(key, spec.value_dim);
  Append(key, spec.softmax_scale);
  Append(key, spec.surrogates);
  Append(key, spec.generation);
  AppendKernel(key, spec.kernel);
  return key;
}

std::string BatchKey(uint64_t generation, const Kernel& kernel) {
  std::string key;
  key.reserve(32);
  key += 'e';
  Append(key, generation);
  AppendKernel(key, kernel);
  return key;
}

}  // namespace castor
