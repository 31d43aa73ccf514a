#include "engine/jobs/tenant_table.h"

#include <algorithm>
#include <cmath>

#include "engine/option_bounds.h"

namespace castor {

void TenantTable::Set(Terms terms) noexcept {
  for (auto& [name, of] : terms) {
    of.weight =
        std::isnan(of.weight) ? 1 : std::clamp(of.weight, kLeastTenantWeight, kMostTenantWeight);
    for (int64_t* const quota :
         {&of.max_queued_requests, &of.max_queued_tokens, &of.max_queued_bytes}) {
      *quota = std::max<int64_t>(*quota, 0);
    }
  }
  {
    MutexLock lock(mu_);
    terms_.swap(terms);
  }
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace castor
