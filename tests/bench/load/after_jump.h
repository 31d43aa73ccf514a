// The first two seconds of an overload, and the rest: the server must learn of it first.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/report.h"

namespace castor::bench {

class AfterJump {
 public:
  // A run of the overload, from when its load began.
  void Add(const Outcomes& outcomes);

  // Goodput, in percent of the peak (good answers per second), and lateness of either part, and
  // when late ones came: "0.9 to 1.3 s (12), 3.2 s (1)".
  void Note(const std::string& name, double peak, Report& report) const;

 private:
  struct Stretch {
    double seconds = 0;
    int64_t good_answers = 0;        // that came in it
    int64_t admitted = 0, late = 0;  // of the calls that were due in it

    void Add(const Outcomes& outcomes, std::chrono::duration<double> from,
             std::chrono::duration<double> to);
    std::string Describe(double peak) const;
  };

  Stretch first_, rest_;
  std::vector<double> late_;  // seconds since the load began at which late ones were due
};

}  // namespace castor::bench
