// What a tenant may have of an engine: its share of the device, and its quotas.
#pragma once

#include <cstdint>

namespace castor {

struct TenantTerms {
  double weight = 1;  // tenants share the device in proportion to theirs: 0.001 to 1000

  // Of what the tenant has admitted and not yet answered, as the engine's own budgets: over one, a
  // request is refused with QUEUE_FULL, or with TOO_LARGE if it exceeds it alone. 0: only the
  // engine's budgets.
  int64_t max_queued_requests = 0;
  int64_t max_queued_tokens = 0;
  int64_t max_queued_bytes = 0;

  bool operator==(const TenantTerms&) const = default;
};

}  // namespace castor
