// The CPU's variant table. A new kernel's rows are added here.

#include "engine/attention/variants_cpu.h"

#include <vector>

namespace castor::attention {

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
