#include "tests/bench/load/affinity.h"

#include <cstdlib>
#include <filesystem>

#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

// Threads of gRPC's have been started already, so each is asked for. Later ones inherit.
void RunAllThreadsOn(const cpu_set_t& set) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::atoi(task.path().filename().c_str()), sizeof(set), &set);
  }
}

cpu_set_t Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

}  // namespace

Processors TwoProcessors() {
  const cpu_set_t allowed = Allowed();
  Processors two;
  for (int cpu = 0; cpu < CPU_SETSIZE && two.client < 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) (two.server < 0 ? two.server : two.client) = cpu;
  }
  if (two.client < 0) Die("this scenario needs two processors");
  return two;
}

PinnedTo::PinnedTo(int cpu) : before_(Allowed()) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  RunAllThreadsOn(one);
}

PinnedTo::~PinnedTo() { RunAllThreadsOn(before_); }

}  // namespace castor::bench
