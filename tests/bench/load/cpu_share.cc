#include "tests/bench/load/cpu_share.h"

#include <algorithm>

namespace castor::bench {

void CpuShare::Add(const CpuTimes& before, const CpuTimes& after) {
  std::chrono::nanoseconds own{0}, busiest{0};
  for (const auto& [thread, time] : after.own) {
    const auto earlier = before.own.find(thread);
    const auto grown = earlier == before.own.end() ? time : time - earlier->second;
    own += grown;
    busiest = std::max(busiest, grown);
  }
  all_ += after.all - before.all;
  computing_ += busiest;
  grpc_ += after.all - before.all - own;
}

void CpuShare::Note(const std::string& name, size_t calls, Report& report) const {
  const auto us_per_call = [calls](std::chrono::nanoseconds time) {
    return static_cast<double>(time.count()) / 1000 /
           static_cast<double>(std::max<size_t>(1, calls));
  };
  report.Note(
      name + "processor time per call: all; all but the thread that computes; gRPC's threads",
      Figure(us_per_call(all_)) + "; " + Figure(us_per_call(all_ - computing_)) + "; " +
          Figure(us_per_call(grpc_), "µs"));
}

}  // namespace castor::bench
