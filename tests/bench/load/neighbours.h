// What else ran on this machine meanwhile: figures of milliseconds mean little beside a compiler.
#pragma once

#include <chrono>

namespace castor::bench {

class Neighbours {
 public:
  Neighbours() : before_(Read()) {}

  // Percent of all processors' time since then that neither this program nor its children took,
  // nor was idle. Children count once they have ended: `living` is what those that still run took
  // in that time. Time that the host kept for itself (steal) is among it.
  double PercentTaken(std::chrono::nanoseconds living = {}) const;

 private:
  struct Times {
    double all = 0, busy = 0, ours = 0;  // seconds
  };
  static Times Read();

  const Times before_;
};

}  // namespace castor::bench
