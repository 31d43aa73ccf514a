#include <type_traits>

#include "engine/kernel_parameters.h"
#include "engine/requests/work.h"

namespace castor {
namespace {

template <typename T>
void Append(std::string& key, const T& value) {
  // Types with padding would make equal values differ.
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Parameters>
void AppendParameters(std::string& key, const Parameters& kernel) {
  ForEachParameter(kernel, [&](const auto&, const auto& value) { Append(key, value); });
  // A launch shares the surrogate tokens of a named layer; a request's own are part of its problem.
  if constexpr (std::is_same_v<Parameters, Cast>) {
    if (const auto* layer = std::get_if<std::string>(&kernel.surrogates)) key += *layer;
  }
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
  for (const int64_t bound :
       {spec.window.left, spec.window.right, spec.window.always_visible, spec.key_bias_heads}) {
    Append(key, bound);
  }
  Append(key, spec.placed);
  Append(key, spec.softcap);
  for (const float* bias : {spec.bias.table, spec.bias.slopes}) {
    Append(key, reinterpret_cast<uintptr_t>(bias));
  }
  Append(key, spec.bias.reach);
  Append(key, spec.log_sum_exp);
  Append(key, spec.kv_heads);
  Append(key, spec.value_is_key_prefix);
  AppendKernel(key, spec.kernel);
  return key;
}

std::string BatchKey(uint64_t model, const Kernel& kernel, bool hides) {
  std::string key;
  key.reserve(32);
  key += 'e';
  Append(key, model);
  Append(key, hides);
  AppendKernel(key, kernel);
  return key;
}

}  // namespace castor
