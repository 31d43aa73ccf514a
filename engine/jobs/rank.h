// A request's place in the order of service. It is made once, when the request is handed to the
// Scheduler, and kept in the Job: ordered containers never see it change.
#pragma once

#include <compare>

#include "engine/engine.h"

namespace castor {

// The smaller rank is served first. SchedulingPolicy makes it.
struct Rank {
  int level = 0;        // 0 is the highest priority
  Ticket sequence = 0;  // order of arrival; unique, so ranks never tie

  auto operator<=>(const Rank&) const = default;
};

}  // namespace castor
