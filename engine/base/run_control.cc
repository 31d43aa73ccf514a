#include "engine/base/run_control.h"

namespace castor {

RunControl& RunToEnd() {
  class ToEnd final : public RunControl {
   public:
    ToEnd() : RunControl(kNever) {}

   private:
    absl::Status AtCheckpoint() override { return absl::OkStatus(); }
  };
  static ToEnd control;
  return control;
}

namespace {

thread_local Heartbeat* bound = nullptr;

}  // namespace

Heartbeat* Heartbeat::OfThisThread() noexcept { return bound; }

BoundHeartbeat::BoundHeartbeat(Heartbeat& heartbeat) noexcept { bound = &heartbeat; }

BoundHeartbeat::~BoundHeartbeat() { bound = nullptr; }

}  // namespace castor
