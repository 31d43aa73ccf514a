#include "engine/automatic/automatic.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

constexpr double kUnknownUs = std::numeric_limits<double>::infinity();

bool Allows(const Automatic& automatic, KernelName name) {
  const std::vector<KernelName>& allowed = automatic.allowed;
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

// One request's geometry with any kernel.
class Pricing {
 public:
  Pricing(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
          std::span<const int32_t> cu_seqlens_k, const PriceOf& price_of)
      : spec_(spec),
        cu_seqlens_q_(cu_seqlens_q),
        cu_seqlens_k_(cu_seqlens_k),
        price_of_(price_of) {}

  const Spec& With(const Kernel& kernel) {
    spec_.kernel = kernel;
    return spec_;
  }

  double Us(const Kernel& kernel) {
    return price_of_(With(kernel), cu_seqlens_q_, cu_seqlens_k_).value_or(kUnknownUs);
  }

  // The exact rows that an approximation is compared with.
  double ProbeUs() {
    std::vector<int32_t> rows = {0};
    rows.reserve(cu_seqlens_q_.size());
    for (size_t s = 0; s + 1 < cu_seqlens_q_.size(); ++s) {
      rows.push_back(rows.back() +
                     std::min(kAutomaticFidelityRows, cu_seqlens_q_[s + 1] - cu_seqlens_q_[s]));
    }
    return price_of_(With(Vanilla{}), rows, cu_seqlens_k_).value_or(0);
  }

 private:
  Spec spec_;
  const std::span<const int32_t> cu_seqlens_q_;
  const std::span<const int32_t> cu_seqlens_k_;
  const PriceOf& price_of_;
};

Rung RungOf(Kernel kernel, double us) {
  return {.kernel = std::move(kernel), .predicted_us = us == kUnknownUs ? 0 : us};
}

}  // namespace

std::vector<Rung> PlanAutomatic(const Automatic& automatic, const Spec& spec,
                                std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k,
                                std::span<const Variant> variants, const PriceOf& price_of) {
  Pricing pricing(spec, cu_seqlens_q, cu_seqlens_k, price_of);
  const auto runs = [&](const Kernel& kernel) {
    return FindVariant(variants, pricing.With(kernel)) != nullptr;
  };
  // CAST needs tensors that only the caller has.
  std::optional<Rung> most_exact;
  for (const KernelName name : kAutomaticKernels) {
    const Kernel kernel = DefaultKernel(name);
    if (most_exact || !Allows(automatic, name) || !runs(kernel)) continue;
    most_exact = RungOf(kernel, pricing.Us(kernel));
  }
  if (automatic.max_relative_error == 0) return {*std::move(most_exact)};

  const double exact_us = pricing.Us(Vanilla{});
  const double probe_us = pricing.ProbeUs();
  std::vector<Candidate> candidates;
  if (!IsApproximate(NameOf(most_exact->kernel))) candidates.push_back({*most_exact, exact_us});
  // Many short sequences: there is no need to look at each kernel.
  if (!candidates.empty() && 2 * probe_us > exact_us) return {*std::move(most_exact)};
  for (const Kernel& kernel : KernelsToChooseFrom(automatic.allowed)) {
    if (!IsApproximate(NameOf(kernel)) || !runs(kernel)) continue;
    const double us = pricing.Us(kernel);
    const double cost_us = us + probe_us;
    if (cost_us < exact_us) candidates.push_back({RungOf(kernel, us), cost_us});
  }
  if (candidates.empty()) return {*std::move(most_exact)};
  return RungsThatPay(candidates);
}

}  // namespace castor::attention
