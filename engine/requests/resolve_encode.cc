#include "engine/requests/resolve_encode.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "engine/encoder/text/output_types.h"
#include "engine/requests/staging.h"

namespace castor {
namespace {

// `asked` may repeat the layers' own parameters, as reports state them, but not change them.
absl::Status CheckOwnCast(const Cast& asked, const Cast& own) {
  constexpr std::string_view kTensor = "must be left out: this model's layers have their own";
  constexpr std::string_view kParameter = "must be left out: this model was trained with another";
  if (const auto* layer = std::get_if<std::string>(&asked.surrogates)) {
    if (!layer->empty()) return InvalidField("cast.layer", kTensor);
  } else if (!std::get<TensorInput>(asked.surrogates).shape.empty()) {
    return InvalidField("cast.surrogate_tokens", kTensor);
  }
  if (!asked.gate.shape.empty()) return InvalidField("cast.gate", kTensor);
  const Cast usual;
  const auto differs = [&](auto Cast::*field) {
    return asked.*field != usual.*field && asked.*field != own.*field;
  };
  if (differs(&Cast::clustering)) return InvalidField("cast.clustering", kParameter);
  if (differs(&Cast::cluster_size)) return InvalidField("cast.cluster_size", kParameter);
  if (differs(&Cast::attention_function)) {
    return InvalidField("cast.attention_function", kParameter);
  }
  if (differs(&Cast::gate_temperature)) return InvalidField("cast.gate_temperature", kParameter);
  if (differs(&Cast::head_clustering)) return InvalidField("cast.head_clustering", kParameter);
  return absl::OkStatus();
}

// The kernel for a model with CAST layers.
absl::StatusOr<Kernel> ChooseCast(const Kernel& asked, const ModelInfo& info) {
  const std::string runs_cast = "model \"" + info.name + "\" has CAST layers, which run cast alone";
  if (std::holds_alternative<Automatic>(asked)) {
    return MakeError(Reason::kKernelNotAvailable, "automatic: " + runs_cast);
  }
  const auto* cast = std::get_if<Cast>(&asked);
  if (cast == nullptr) {
    return MakeError(Reason::kKernelNotAvailable,
                     std::string(NameOf(NameOf(asked))) + ": " + runs_cast);
  }
  absl::Status same = CheckOwnCast(*cast, std::get<Cast>(info.kernel));
  if (!same.ok()) return same;
  return info.kernel;
}

}  // namespace

absl::StatusOr<Kernel> ChooseEncodeKernel(const EncodeRequest& request, const ModelInfo& info) {
  if (!request.kernel) return info.kernel;
  if (auto status = attention::CheckParameters(*request.kernel); !status.ok()) return status;
  if (std::holds_alternative<Cast>(info.kernel)) return ChooseCast(*request.kernel, info);
  auto kernel = attention::ChooseKernel(*request.kernel);
  if (!kernel.ok()) return kernel.status();
  const KernelName name = NameOf(*kernel);
  if (std::find(info.kernels.begin(), info.kernels.end(), name) == info.kernels.end()) {
    return MakeError(Reason::kKernelNotAvailable,
                     "model \"" + info.name + "\" cannot run " + std::string(NameOf(name)));
  }
  // A model that was trained with a causal mask keeps it, whatever the request says.
  const auto* own = std::get_if<Vanilla>(&info.kernel);
  if (own != nullptr && own->causal) return info.kernel;
  return kernel;
}

absl::StatusOr<EncodeWork> ResolveEncode(EncodeRequest request, ModelUse model,
                                         std::span<const attention::Variant> variants,
                                         const EngineOptions& limits) {
  const encoder::Model& encoder = *model->encoder;
  auto status = encoder.CheckInput(request, limits.max_sequences, limits.max_text_bytes);
  if (!status.ok()) return status;
  auto kernel = ChooseEncodeKernel(request, model->info);
  if (!kernel.ok()) return kernel.status();
  status = encoder::CheckOption(encoder, *kernel, variants);
  if (!status.ok()) return status;
  auto ranges = encoder::ReadRanges(request, model->info);
  if (!ranges.ok()) return ranges.status();
  EncodeWork work = OpenEncode(std::move(request), std::move(model), *std::move(kernel));
  work.ranges = *std::move(ranges);
  return work;
}

}  // namespace castor
