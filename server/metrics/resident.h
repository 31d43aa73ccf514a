// How much memory the process has resident, from /proc/self/statm.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace castor::server {

// In bytes; 0 if /proc cannot be read. Takes some microseconds.
inline int64_t ResidentBytes() {
  const int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (statm < 0) return 0;
  char text[128] = {};
  const ssize_t got = read(statm, text, sizeof(text) - 1);
  close(statm);
  long long total = 0;
  long long resident = 0;
  if (got <= 0 || std::sscanf(text, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace castor::server
