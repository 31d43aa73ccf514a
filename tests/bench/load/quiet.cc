#include "tests/bench/load/quiet.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "tests/bench/load/outcomes.h"

namespace castor::bench {

std::optional<double> MillisecondsUntilQuiet(const ServerProcess& server, Clock::time_point since,
                                             std::chrono::seconds limit) {
  constexpr auto kStep = std::chrono::milliseconds(2);
  constexpr auto kWindow = std::chrono::milliseconds(100);
  std::deque<std::pair<Clock::time_point, std::chrono::nanoseconds>> window;
  for (auto next = since; next < since + limit; next += kStep) {
    std::this_thread::sleep_until(next);
    const auto now = Clock::now();
    const std::chrono::nanoseconds used = server.CpuTime();
    window.emplace_back(now, used);
    // Whatever made this sample's window busy was done before the oldest sample left it.
    while (window.size() > 1 && used - window.front().second >= kWindow / 20) window.pop_front();
    if (now - window.front().first >= kWindow) {
      return std::max(0.0, Milliseconds(window.front().first - since));
    }
  }
  return std::nullopt;
}

}  // namespace castor::bench
