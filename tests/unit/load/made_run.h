// Runs made by hand or by chance, for tests of what reads them.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "client/load/measure/run_data.h"

namespace castor::load {

// A run of `seconds` in which nothing has happened yet: one class "short" with the goal p99 <=
// 50 ms and no errors above 1 %, one endpoint, one client that fared well.
RunData EmptyRun(int seconds);

// What becomes of one request of a class at the first endpoint, in a second of the run.
struct Request {
  int second = 0;
  Outcome outcome = Outcome::kOk;
  std::chrono::nanoseconds latency = std::chrono::milliseconds(10);  // from the intended time
  std::chrono::nanoseconds lag = std::chrono::microseconds(20);
  size_t cls = 0;
};
void Count(const Request& request, RunData& run, int64_t times = 1);

// A server whose latencies are lognormal about a level that wanders from second to second, as that
// of a shared machine does.
struct Wandering {
  int seconds = 60;
  int rate = 100;
  double median_ms = 10;
  double sigma = 0.4;        // of the logarithm, within a second
  double level_sigma = 0.1;  // of the logarithm of the level
  double correlation = 0.6;  // of one second's level with the next one's
};
RunData WanderingRun(const Wandering& server, uint32_t seed);

// Values in every field, two classes and three endpoints; different with each draw.
RunData RandomRun(std::mt19937& random);

}  // namespace castor::load
