// One request of a schedule, on its way.
#pragma once

#include <cstdint>

#include "client/load/base/clock.h"
#include "client/load/http2/client_connection.h"
#include "client/load/schedule/schedule.h"

namespace castor::load {

struct SentCall : UnaryCall {
  Planned planned{};
  uint16_t endpoint = 0;
  Clock::time_point sent{};
  Clock::time_point ends{};  // when this client ends it: its deadline, or as planned
};

}  // namespace castor::load
