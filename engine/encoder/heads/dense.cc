#include "engine/encoder/heads/dense.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/network/layers.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {
namespace {

struct TorchActivation {
  std::string_view name;  // the last part of its Python name
  std::optional<Activation> activation;
};
constexpr TorchActivation kTorchActivations[] = {
    {"Identity", std::nullopt},     {"Tanh", Activation::kTanh}, {"ReLU", Activation::kRelu},
    {"GELU", Activation::kGeluErf}, {"SiLU", Activation::kSilu}, {"Mish", Activation::kMish},
};

std::optional<Activation> ReadTorchActivation(ConfigReader& config) {
  if (config.IsNull("activation_function")) config.Fail("activation_function", "must not be null");
  const std::string name = config.String("activation_function", "torch.nn.modules.activation.Tanh");
  std::string known;
  for (const TorchActivation& row : kTorchActivations) {
    if (name.starts_with("torch.nn.") && name.substr(name.rfind('.') + 1) == row.name) {
      return row.activation;
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  config.Fail("activation_function",
              "\"" + name + "\" is not supported; torch.nn's " + known + " are");
  return std::nullopt;
}

}  // namespace

absl::StatusOr<DenseModule> ReadDense(const std::string& folder, const std::string& input,
                                      bool colbert) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kDense, folder + "/config.json");
  if (!config.ok()) return config.status();
  for (const char* key : {"in_features", "out_features"}) {
    if (!config->Has(key)) config->Fail(key, "is missing");
  }
  DenseModule module{.folder = folder,
                     .in = ReadSize(*config, "in_features", 1),
                     .out = ReadSize(*config, "out_features", 1),
                     .bias = config->Bool("bias", true),
                     .activation = ReadTorchActivation(*config)};
  std::string name = colbert ? "token_embeddings" : "sentence_embedding";
  for (const char* key : {"module_input_name", "module_output_name"}) {
    name = config->String(key, name);
    if (name != input) {
      config->Fail(key, "\"" + name + "\" is not supported here; \"" + input + "\" is");
    }
  }
  module.residual = config->Bool("use_residual", false);
  if (!config->status().ok()) return config->status();
  return module;
}

absl::StatusOr<DenseModule> ReadLayerNorm(const std::string& folder) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kLayerNorm, folder + "/config.json");
  if (!config.ok()) return config.status();
  if (!config->Has("dimension")) config->Fail("dimension", "is missing");
  const int64_t size = ReadSize(*config, "dimension", 1);
  if (!config->status().ok()) return config->status();
  return DenseModule{.folder = folder, .in = size, .out = size, .norm = true};
}

int64_t DenseStack::out() const {
  // A norm keeps the number of elements.
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    if (!layer->norm.has_value()) return layer->linear.out();
  }
  return 0;
}

kernels::Count DenseStack::row_bytes() const {
  constexpr int64_t kFloat = sizeof(float);
  // A layer holds its input and three arrays of its output at once; five if it adds the input.
  kernels::Count most = 0;
  int64_t in = 0;
  for (const DenseLayer& layer : layers_) {
    if (layer.norm.has_value()) {
      most = std::max(most, 3 * kFloat * kernels::Count(layer.norm->size()));
      continue;
    }
    in = layer.linear.in();
    const int64_t kept = layer.adds_input ? 5 : 3;
    most = std::max(most, kernels::Count(in) * kFloat + kept * kFloat * layer.linear.out());
  }
  return most;
}

absl::StatusOr<at::Tensor> DenseStack::operator()(const at::Tensor& rows,
                                                  RunControl& control) const {
  at::Tensor x = rows;
  for (const DenseLayer& layer : layers_) {
    if (layer.norm.has_value()) {
      x = (*layer.norm)(x.to(at::kFloat));
      continue;
    }
    const int64_t step = HeadRows(x, layer.linear.elements());
    at::Tensor y = at::empty({x.size(0), layer.linear.out()}, x.options().dtype(at::kFloat));
    absl::Status done = InSteps(x.size(0), step, control, [&](int64_t first, int64_t count) {
      const at::Tensor part = x.narrow(0, first, count).to(at::kFloat);
      at::Tensor out = layer.linear(part, layer.activation);
      if (layer.adds_input) out.add_(layer.residual ? (*layer.residual)(part) : part);
      y.narrow(0, first, count).copy_(out);
    });
    if (!done.ok()) return done;
    x = std::move(y);
  }
  return x;
}

absl::StatusOr<LoadedDense> LoadDense(const std::vector<DenseModule>& modules, int64_t width,
                                      at::Device device) {
  LoadedDense loaded;
  std::vector<DenseLayer> layers;
  for (const DenseModule& module : modules) {
    if (module.in != width) {
      return absl::InvalidArgumentError(
          absl::StrCat(module.folder, "/config.json: ", module.norm ? "dimension" : "in_features",
                       ": is ", module.in, ", but the rows before it have ", width, " elements"));
    }
    absl::StatusOr<std::unique_ptr<hf::Safetensors>> files =
        hf::Safetensors::OpenModel(module.folder);
    if (!files.ok()) return files.status();
    WeightReader weights(**files, module.folder, at::kFloat, device);
    if (module.norm) {
      constexpr double kEpsilon = 1e-5;  // torch's
      layers.push_back({.linear = Linear(), .activation = {}});
      layers.back().norm = TakeNorm(weights, "norm", module.in, kEpsilon);
      if (!weights.status().ok()) return weights.status();
      loaded.parameters += weights.parameters();
      loaded.weight_bytes += weights.bytes();
      continue;
    }
    layers.push_back(
        {TakeLinear(weights, "linear", module.out, module.in, module.bias), module.activation});
    if (module.residual && module.in != module.out) {
      layers.back().residual = TakeLinear(weights, "residual", module.out, module.in, false);
    }
    layers.back().adds_input = module.residual;
    // torch refuses tensors that the module does not have.
    for (const auto& [tensor, has] :
         {std::pair{"linear.bias", module.bias},
          std::pair{"residual.weight", layers.back().residual.has_value()}}) {
      if ((*files)->Find(tensor) == nullptr || has) continue;
      return absl::InvalidArgumentError(absl::StrCat(module.folder,
                                                     "/config.json: has no use for the tensor \"",
                                                     tensor, "\", which is stored"));
    }
    if (!weights.status().ok()) return weights.status();
    loaded.parameters += weights.parameters();
    loaded.weight_bytes += weights.bytes();
    width = module.out;
  }
  loaded.stack = DenseStack(std::move(layers));
  return loaded;
}

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
