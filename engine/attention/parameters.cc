#include "engine/attention/parameters.h"

#include <algorithm>
#include <string>

#include "engine/base/error.h"
#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

constexpr int32_t kMaxClusters = 65536;
constexpr int32_t kMaxIterations = 1000;
constexpr int32_t kMaxBits = 64;
constexpr int32_t kMaxTopk = 1024;

absl::Status CheckRange(std::string_view kernel, std::string_view parameter, int64_t value,
                        int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  const std::string field = std::string(kernel) + "." + std::string(parameter);
  return InvalidField(field, "is " + std::to_string(value) + ", must be " + std::to_string(least) +
                                 ".." + std::to_string(most));
}

absl::Status CheckClustering(std::string_view kernel, const Clustered& parameters) {
  if (absl::Status s = CheckRange(kernel, "clusters", parameters.clusters, 1, kMaxClusters);
      !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckRange(kernel, "iterations", parameters.iterations, 1, kMaxIterations);
      !s.ok()) {
    return s;
  }
  return CheckRange(kernel, "bits", parameters.bits, 1, kMaxBits);
}

absl::Status Check(const Vanilla&) { return absl::OkStatus(); }

absl::Status Check(const Clustered& kernel) { return CheckClustering("clustered", kernel); }

absl::Status Check(const ImprovedClustered& kernel) {
  if (absl::Status s = CheckClustering("improved_clustered", kernel); !s.ok()) return s;
  return CheckRange("improved_clustered", "topk", kernel.topk, 1, kMaxTopk);
}

absl::Status Check(const Cast& kernel) {
  if (kernel.cluster_size >= 0) return absl::OkStatus();
  return InvalidField("cast.cluster_size", "must not be negative");
}

absl::Status Check(const Automatic& kernel) {
  // Written so that NaN fails.
  if (kernel.max_relative_error >= 0 && kernel.max_relative_error <= 1) return absl::OkStatus();
  return InvalidField("automatic.max_relative_error", "must be 0..1");
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
  return InvalidField("automatic.allowed",
                      "allows only cast, which needs surrogate tokens: ask for cast itself");
}

}  // namespace

absl::Status CheckParameters(const Kernel& kernel) {
  return std::visit([](const auto& alternative) { return Check(alternative); }, kernel);
}

absl::StatusOr<Kernel> ChooseKernel(const Kernel& kernel) {
  if (absl::Status s = CheckParameters(kernel); !s.ok()) return s;
  if (const auto* automatic = std::get_if<Automatic>(&kernel)) return Choose(*automatic);
  return kernel;
}

}  // namespace castor::attention
