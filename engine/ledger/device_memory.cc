#include "engine/ledger/device_memory.h"

namespace castor {

int64_t AutomaticDeviceBytes(const Device& device) {
  const int64_t memory = device.info().memory_bytes;
  if (memory <= 0) return DeviceBudget::kNone;
  if (!device.copies_tensors()) return memory / 2;
  // The context, the libraries' workspaces, and what the allocator cannot use between blocks.
  constexpr int64_t kLeastReserve = int64_t{1} << 30;
  constexpr int64_t kReservePart = 16;
  return memory - std::min(memory / 2, std::max(kLeastReserve, memory / kReservePart));
}

}  // namespace castor
