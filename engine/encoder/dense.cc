#include "engine/encoder/dense.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/encoder/config_keys.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/head_steps.h"
#include "engine/encoder/layers.h"
#include "engine/encoder/weights.h"
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

constexpr std::string_view kDenseKeys[] = {
    "in_features",       "out_features",       "bias",        "activation_function",
    "module_input_name", "module_output_name", "use_residual"};

std::optional<Activation> ReadTorchActivation(ConfigReader& config) {
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

absl::StatusOr<DenseModule> ReadDense(const std::string& folder, const std::string& input) {
  absl::StatusOr<ConfigReader> config = ReadConfig(folder + "/config.json");
  if (!config.ok()) return config.status();
  for (const std::string& key : config->Names()) {
    if (std::find(std::begin(kDenseKeys), std::end(kDenseKeys), key) == std::end(kDenseKeys)) {
      config->Fail(key, "is not known");
    }
  }
  for (const char* key : {"in_features", "out_features"}) {
    if (!config->Has(key)) config->Fail(key, "is missing");
  }
  DenseModule module{.folder = folder,
                     .in = ReadSize(*config, "in_features", 1),
                     .out = ReadSize(*config, "out_features", 1),
                     .bias = config->Bool("bias", true),
                     .activation = ReadTorchActivation(*config)};
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const std::string name = config->String(key, input);
    if (name != input) {
      config->Fail(key, "\"" + name + "\" is not supported here; \"" + input + "\" is");
    }
  }
  if (config->Bool("use_residual", false)) config->Fail("use_residual", "is not supported");
  if (!config->status().ok()) return config->status();
  return module;
}

attention::Count DenseStack::row_bytes() const {
  constexpr int64_t kFloat = sizeof(float);
  // Each layer's rows are put together from steps, while those that it reads are kept.
  attention::Count most = 0;
  int64_t in = 0;
  for (const DenseLayer& layer : layers_) {
    in = layer.linear.in();
    most = std::max(most, attention::Count(in) * kFloat + 3 * kFloat * layer.linear.out());
  }
  return most;
}

absl::StatusOr<at::Tensor> DenseStack::operator()(const at::Tensor& rows,
                                                  RunControl& control) const {
  at::Tensor x = rows;
  for (const DenseLayer& layer : layers_) {
    const int64_t step = HeadRows(x, layer.linear.elements());
    at::Tensor y = at::empty({x.size(0), layer.linear.out()}, x.options().dtype(at::kFloat));
    absl::Status done = InSteps(x.size(0), step, control, [&](int64_t first, int64_t count) {
      const at::Tensor part = x.narrow(0, first, count).to(at::kFloat);
      y.narrow(0, first, count).copy_(layer.linear(part, layer.activation));
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
      return absl::InvalidArgumentError(absl::StrCat(module.folder,
                                                     "/config.json: in_features: is ", module.in,
                                                     ", but rows of ", width, " come in"));
    }
    absl::StatusOr<std::unique_ptr<hf::Safetensors>> files =
        hf::Safetensors::OpenModel(module.folder);
    if (!files.ok()) return files.status();
    WeightReader weights(**files, module.folder, at::kFloat, device);
    layers.push_back(
        {TakeLinear(weights, "linear", module.out, module.in, module.bias), module.activation});
    if (!weights.status().ok()) return weights.status();
    loaded.parameters += weights.parameters();
    loaded.weight_bytes += weights.bytes();
    width = module.out;
  }
  loaded.stack = DenseStack(std::move(layers));
  return loaded;
}

}  // namespace castor::encoder
