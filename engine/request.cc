#include "engine/request.h"

namespace castor {

std::string_view NameOf(KernelName name) {
  switch (name) {
    case KernelName::kVanilla:
      return "vanilla";
    case KernelName::kClustered:
      return "clustered";
    case KernelName::kImprovedClustered:
      return "improved_clustered";
    case KernelName::kCast:
      return "cast";
  }
  return "?";
}

KernelName NameOf(const Kernel& kernel) { return static_cast<KernelName>(kernel.index()); }

int64_t TensorInput::size_bytes() const {
  int64_t total = 0;
  for (const auto& piece : pieces) total += static_cast<int64_t>(piece.size());
  return total;
}

}  // namespace castor
