#include "server/transport/memory_guard.h"

#include <malloc.h>

#include "engine/base/machine.h"
#include "server/resident.h"

namespace castor::server {

MemoryGuard::MemoryGuard() : MemoryGuard(MemoryLimitBytes() / 2) {}

bool MemoryGuard::Look(Connections& connections) {
  const int64_t resident = ResidentBytes();
  near_ = resident > limit_ / 2;
  if (resident <= limit_) return false;
  malloc_trim(0);  // resident memory after the last connection was closed
  return ResidentBytes() > limit_ && connections.CloseLargest();
}

}  // namespace castor::server
