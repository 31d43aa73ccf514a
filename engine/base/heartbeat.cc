#include "engine/base/heartbeat.h"

namespace castor {
namespace {

thread_local Heartbeat* bound = nullptr;

}  // namespace

Heartbeat* Heartbeat::OfThisThread() noexcept { return bound; }

BoundHeartbeat::BoundHeartbeat(Heartbeat& heartbeat) noexcept { bound = &heartbeat; }

BoundHeartbeat::~BoundHeartbeat() { bound = nullptr; }

}  // namespace castor
