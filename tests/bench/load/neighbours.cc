#include "tests/bench/load/neighbours.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace castor::bench {

Neighbours::Times Neighbours::Read() {
  Times times;
  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;  // "cpu": the sum of all
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  // user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in these.
  for (int column = 0; column < 8; ++column) {
    double value = 0;
    stat >> value;
    times.all += value / ticks;
    if (column != 3 && column != 4) times.busy += value / ticks;
  }
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      times.ours += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return times;
}

double Neighbours::PercentTaken(std::chrono::nanoseconds living) const {
  const Times now = Read();
  const double all = now.all - before_.all;
  const double others = now.busy - before_.busy - (now.ours - before_.ours) -
                        std::chrono::duration<double>(living).count();
  return all > 0 ? 100 * std::max(0.0, others / all) : 0;
}

}  // namespace castor::bench
