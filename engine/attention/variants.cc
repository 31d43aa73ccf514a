#include "engine/attention/variants.h"

namespace castor::attention {

const Variant* FindVariant(std::span<const Variant> table, const Spec& spec) {
  const KernelName name = NameOf(spec.kernel);
  for (const Variant& row : table) {
    if (row.kernel == name && row.supports(spec)) return &row;
  }
  return nullptr;
}

}  // namespace castor::attention
