#include "engine/encoder/heads/head_transform.h"

#include <string>

#include "engine/encoder/directory/config_keys.h"

namespace castor::encoder {

at::Tensor HeadTransform::operator()(const at::Tensor& rows) const {
  at::Tensor x = rows;
  if (dense_.has_value()) x = (*dense_)(x, activation_);
  return norm_.has_value() ? (*norm_)(x) : x;
}

HeadTransform TakeTransform(ConfigReader& config, WeightReader& weights,
                            const TransformNames& names, double epsilon, int64_t hidden) {
  HeadTransform transform;
  if (names.dense.empty()) return transform;
  const auto has_bias = [&](std::string_view key) {
    return key.empty() || config.Bool(key, false);
  };
  transform.activation_ =
      names.activation.has_value()
          ? *names.activation
          : ReadActivation(config, names.activation_key, names.activation_default);
  transform.dense_ =
      TakeLinear(weights, std::string(names.dense), hidden, hidden, has_bias(names.dense_bias_key));
  if (!names.norm.empty()) {
    transform.norm_ =
        TakeNorm(weights, std::string(names.norm), hidden, epsilon, has_bias(names.norm_bias_key));
  }
  return transform;
}

}  // namespace castor::encoder
