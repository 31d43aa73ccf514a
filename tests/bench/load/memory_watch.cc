#include "tests/bench/load/memory_watch.h"

#include <algorithm>

#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/report.h"

namespace castor::bench {

MemoryWatch::MemoryWatch(const ServerProcess& server, std::chrono::milliseconds interval) {
  thread_ = std::thread([this, &server, interval] {
    for (const auto begin = Clock::now(); !stop_.load();) {
      samples_.push_back({Milliseconds(Clock::now() - begin) / 1000,
                          static_cast<double>(server.ResidentBytes()) / (1 << 20)});
      std::this_thread::sleep_for(interval);
    }
  });
}

MemoryWatch::~MemoryWatch() { Stop(); }

void MemoryWatch::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

const std::vector<Point>& MemoryWatch::Samples() {
  Stop();
  return samples_;
}

std::string MemoryWatch::Describe() {
  Stop();
  if (samples_.empty()) return "n/a";
  double most = 0;
  std::vector<Point> later;
  for (const Point& sample : samples_) {
    most = std::max(most, sample.y);
    if (sample.x >= 1) later.push_back(sample);
  }
  return Figure(samples_.front().y) + " to " + Figure(samples_.back().y) + ", at most " +
         Figure(most, "MiB") + "; slope " + Figure(LeastSquares(later).slope, "MiB/s");
}

}  // namespace castor::bench
