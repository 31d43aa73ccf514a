// The order in which waiting requests are served: priority, then arrival.
//
// This is the one place that decides it. A rank is fixed when a request arrives, which is all that
// the queue's ordered containers need. Ageing fits that too: a rank of "arrival minus a head start
// per priority level" lets old requests overtake without a clock. Earliest deadline first is one
// more field between the two below.
#pragma once

#include <compare>

#include "engine/jobs/job.h"

namespace castor {

// The smaller rank is served first.
struct Rank {
  int level = 0;        // 0 is the highest priority
  Ticket sequence = 0;  // order of arrival; unique, so ranks never tie

  auto operator<=>(const Rank&) const = default;
};

inline Rank RankOf(const Job& job) {
  return {static_cast<int>(Priority::kHigh) - static_cast<int>(job.priority), job.ticket};
}

}  // namespace castor
