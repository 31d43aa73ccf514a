// What a run tells whoever watches it, about once a second.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/load/measure/run_data.h"

namespace castor::load {

struct Progress {
  std::string phase;  // "warming up", "running", "waiting for the last answers"
  double elapsed_seconds = 0, total_seconds = 0;  // of the phase
  std::vector<std::string> classes;
  std::vector<Second> last;  // by class: answers that came in the last second
  std::vector<Second> all;   // by class: since the phase began
  int64_t in_flight = 0;
  double cpu_share = 0;  // of one core, by all threads of this process
};

// Called on one thread at a time, never on one that sends.
using OnProgress = std::function<void(const Progress&)>;

}  // namespace castor::load
