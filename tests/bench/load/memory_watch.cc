#include "tests/bench/load/memory_watch.h"

#include <algorithm>
#include <chrono>

#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/report.h"

namespace castor::bench {

MemoryWatch::MemoryWatch(const ServerProcess& server) {
  thread_ = std::thread([this, &server] {
    for (const auto begin = Clock::now(); !stop_.load();) {
      samples_.push_back({Milliseconds(Clock::now() - begin) / 1000,
                          static_cast<double>(server.ResidentBytes()) / (1 << 20)});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}

MemoryWatch::~MemoryWatch() { Stop(); }

void MemoryWatch::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string MemoryWatch::Describe() {
  Stop();
  double n = 0, t = 0, m = 0, tt = 0, tm = 0, most = 0;
  for (const Sample& sample : samples_) {
    most = std::max(most, sample.mib);
    if (sample.seconds < 1) continue;
    n += 1;
    t += sample.seconds;
    m += sample.mib;
    tt += sample.seconds * sample.seconds;
    tm += sample.seconds * sample.mib;
  }
  const double spread = n * tt - t * t;
  const double slope = spread > 0 ? (n * tm - t * m) / spread : 0;
  if (samples_.empty()) return "n/a";
  return Figure(samples_.front().mib) + " to " + Figure(samples_.back().mib) + ", at most " +
         Figure(most, "MiB") + "; slope " + Figure(slope, "MiB/s");
}

}  // namespace castor::bench
