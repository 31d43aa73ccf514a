// The checks of resolve.h that look at a kernel's parameters alone.
#include <algorithm>
#include <string>
#include <type_traits>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "engine/kernel_parameters.h"
#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

// Refuses parameters of the hash where the clustering does not hash.
absl::Status CheckHash(const Clustered& kernel, std::string_view label) {
  if (kernel.clustering == Clustered::Clustering::kHash) return absl::OkStatus();
  const auto refused = [&](std::string_view parameter) {
    return InvalidField(std::string(label) + "." + std::string(parameter), kOnlyHash);
  };
  if (kernel.bits != Clustered{}.bits) return refused("bits");
  if (kernel.hash_bias != Clustered{}.hash_bias) return refused("hash_bias");
  return absl::OkStatus();
}

absl::Status CheckRest(const ImprovedClustered& kernel, std::string_view label) {
  if (kernel.rest_mass == ImprovedClustered::RestMass::kQuery || kernel.rest_groups == 1) {
    return absl::OkStatus();
  }
  return InvalidField(std::string(label) + ".rest_groups",
                      "is for rest_mass QUERY; with CENTROID the rest has one mass");
}

// The first parameter out of its range.
template <typename Parameters>
absl::Status Check(const Parameters& kernel, std::string_view label) {
  absl::Status status;
  ForEachParameter(kernel, [&](const auto& parameter, auto value) {
    const auto& range = parameter.range;
    const auto number = static_cast<int64_t>(value);
    if (!status.ok() || !range || (number >= range->least && number <= range->most)) return;
    status = InvalidField(std::string(label) + "." + std::string(parameter.name),
                          "is " + std::to_string(number) + ", must be " +
                              std::to_string(range->least) + ".." + std::to_string(range->most));
  });
  if constexpr (std::is_base_of_v<Clustered, Parameters>) {
    if (status.ok()) status = CheckHash(kernel, label);
  }
  if constexpr (std::is_same_v<ImprovedClustered, Parameters>) {
    if (status.ok()) status = CheckRest(kernel, label);
  }
  return status;
}

absl::Status Check(const Cast& kernel, std::string_view) {
  if (kernel.cluster_size >= 0) return absl::OkStatus();
  return InvalidField("cast.cluster_size", "must not be negative");
}

absl::Status Check(const Automatic& kernel, std::string_view) {
  // Written so that NaN fails.
  if (!(kernel.max_relative_error >= 0 && kernel.max_relative_error <= 1)) {
    return InvalidField("automatic.max_relative_error", "must be 0..1");
  }
  return absl::OkStatus();
}

absl::StatusOr<Kernel> Choose(const Automatic& automatic) {
  const auto& allowed = automatic.allowed;
  const auto allows = [&allowed](KernelName name) {
    return std::find(allowed.begin(), allowed.end(), name) != allowed.end();
  };
  if (allowed.empty() || allows(KernelName::kVanilla)) return Vanilla{};
  if (automatic.max_relative_error == 0) {
    return InvalidField("automatic.allowed",
                        "leaves out vanilla, but max_relative_error 0 allows only vanilla");
  }
  for (const KernelName name : kAutomaticKernels) {
    if (allows(name)) return DefaultKernel(name);
  }
  return InvalidField(
      "automatic.allowed",
      "allows only cast, which needs surrogate tokens: choose the kernel cast itself");
}

}  // namespace

absl::Status CheckParameters(const Kernel& kernel) {
  const std::string_view label =
      std::holds_alternative<Automatic>(kernel) ? "automatic" : NameOf(NameOf(kernel));
  return std::visit([&](const auto& alternative) { return Check(alternative, label); }, kernel);
}

absl::StatusOr<Kernel> ChooseKernel(const Kernel& kernel) {
  if (absl::Status s = CheckParameters(kernel); !s.ok()) return s;
  if (const auto* automatic = std::get_if<Automatic>(&kernel)) return Choose(*automatic);
  return kernel;
}

}  // namespace castor::attention
