// Runs of a load test as a small simulation of clients and servers gives them, for tests of what is
// made of runs: reports, verdicts, comparisons.
#pragma once

#include <cstdint>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor {

struct SimulatedRun {
  double seconds = 60;
  double rate = 220;           // requests/s
  int classes = 2;             // "interactive", "documents", then "class 3" ...
  double stall_at = 23;        // both servers pause here (s) ...
  double stall_seconds = 1.4;  // ... for so long
  double speed = 1;            // of the servers
  int64_t max_waiting = 110;   // requests that a server refuses beyond
  int64_t max_sent = 0;        // the client sends late beyond so many in flight; 0: never late
  uint64_t seed = 1;
};

// Two endpoints. Deterministic.
load::RunData SimulateRun(const SimulatedRun& simulated);

// What Judge would find of such a run, in form: some rules and objectives, as `valid` and by the
// run's own figures.
load::Verdict VerdictOf(const load::RunData& run, bool valid);

}  // namespace castor
