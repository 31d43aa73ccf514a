#include "server/lifecycle/watchdog.h"

#include <algorithm>
#include <utility>

namespace castor::server {

using std::chrono::milliseconds;

bool StallMeter::Update(const Progress& progress, TimePoint now) {
  const bool first = last_look_ == TimePoint::min();
  const bool still = !first && progress.busy && progress.beats == last_.beats;
  without_progress_ =
      still ? without_progress_ + std::min(now - last_look_, most_per_look_) : Duration(0);
  last_ = progress;
  last_look_ = now;
  return without_progress_ >= limit_;
}

Watchdog::Watchdog(Periodic& periodic, const Engine& engine, milliseconds limit,
                   std::function<void(bool)> changed)
    : engine_(engine),
      changed_(std::move(changed)),
      between_(std::clamp(limit / 8, milliseconds(5), milliseconds(5000))),
      meter_(limit, 2 * between_),
      task_(periodic, milliseconds(0), [this] {
        Check();
        return between_;
      }) {}

void Watchdog::Check() {
  const bool stalled = meter_.Update(engine_.progress(), std::chrono::steady_clock::now());
  if (stalled != stalled_) changed_(stalled);
  stalled_ = stalled;
}

}  // namespace castor::server
