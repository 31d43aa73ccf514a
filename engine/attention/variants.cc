#include "engine/attention/variants.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace castor::attention {

const Variant* FindVariant(std::span<const Variant> table, const Spec& spec) {
  const KernelName name = NameOf(spec.kernel);
  for (const Variant& row : table) {
    if (row.kernel == name && row.supports(spec)) return &row;
  }
  return nullptr;
}

bool HasKernel(std::span<const Variant> table, KernelName name) {
  return std::any_of(table.begin(), table.end(),
                     [&](const Variant& row) { return row.kernel == name; });
}

absl::Status CheckOption(std::span<const Variant> table, const Spec& spec) {
  const std::string_view option = OptionBeyondThePaper(spec.kernel);
  if (option.empty() || FindVariant(table, spec) != nullptr) return absl::OkStatus();
  const KernelName name = NameOf(spec.kernel);
  if (!HasKernel(table, name)) return absl::OkStatus();  // not for the option's sake
  return MakeError(Reason::kKernelNotAvailable,
                   std::string(option) + ": this device runs " + std::string(NameOf(name)) +
                       " only as its paper defines it, with " +
                       (option.ends_with("rest_mass") ? "CENTROID" : "HASH"));
}

// The CPU's variant table. A new kernel's rows are added here.

std::span<const Variant> CpuVariants() {
  static const std::vector<Variant>* const table = [] {
    auto* rows = new std::vector<Variant>;
    for (const std::span<const Variant> kernel :
         {VanillaCpuVariants(), ClusteredCpuVariants(), CastCpuVariants()}) {
      rows->insert(rows->end(), kernel.begin(), kernel.end());
    }
    return rows;
  }();
  return *table;
}

}  // namespace castor::attention
