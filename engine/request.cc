#include "engine/request.h"

#include "engine/kernel_table.h"

namespace castor {

std::string_view NameOf(KernelName name) { return RowOf(name).label; }

KernelName NameOf(const Kernel& kernel) { return static_cast<KernelName>(kernel.index()); }

int64_t TensorInput::size_bytes() const {
  if (file.has_value()) return file->size;
  std::optional<int64_t> total = 0;
  for (const auto& piece : pieces) {
    total = CheckedAdd(*total, static_cast<int64_t>(piece.size()));
    if (!total) return -1;
  }
  return *total;
}

}  // namespace castor
