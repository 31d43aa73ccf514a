// Made-up traffic for the simulation of the scheduler.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/ledger/device_memory.h"
#include "engine/request.h"

namespace castor::simulation {

using Duration = std::chrono::nanoseconds;

// A request as the scheduler sees it.
struct Request {
  size_t source = 0;  // its row in Workload::sources
  std::string batch_key = {};
  int64_t tokens = 1;
  Duration work{};         // on the device, beside what a launch costs
  MemoryNeed memory = {};  // on the device, while it runs
  std::string tenant = {};
  Priority priority = Priority::kNormal;
  std::optional<Duration> deadline = {};  // after its arrival
};

// Callers that are alike. Either open: requests arrive at `rate` a second, whatever becomes of
// them. Or closed: there are `in_flight` callers, each of which sends its next request a while
// after an answer.
struct Source {
  std::string name = {};
  double rate = 0;
  int in_flight = 0;
  Duration think{};  // of a closed source, from an answer to the next request: the mean
  int burst = 1;     // requests that arrive together, at `rate / burst`
  std::function<Request(std::mt19937& random)> draw = {};
};

struct Workload {
  std::string name;
  std::vector<Source> sources;
  Duration length{};  // how long requests arrive; closed sources go on no longer either
};

// What a CPU of two cores takes for exact attention over one sequence, roughly: linear up to a few
// hundred tokens, then quadratic; 64K tokens take some 25 s.
Duration AttentionTime(int64_t tokens);

// Requests of `low` to `high` tokens, uniform, of any of `keys` batch keys.
std::function<Request(std::mt19937&)> Attention(int64_t low, int64_t high, int keys,
                                                std::optional<Duration> deadline = std::nullopt);

}  // namespace castor::simulation
