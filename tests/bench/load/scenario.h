// The scenarios of load_bench. Each starts its own server, and stops it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/bench/load/report.h"

namespace castor::bench {

struct Settings {
  std::string server;                       // the program
  std::string model;                        // a model's directory
  std::string baseline;                     // another server's program, for idle_cost; may be empty
  std::chrono::duration<double> phase{10};  // of each measuring phase
  int rounds = 3;                           // how often phases that are compared take turns
};

void ShortBesideLong(const Settings& settings, Report& report);
void HugeAttend(const Settings& settings, Report& report);
void HugeText(const Settings& settings, Report& report);
void ManySpans(const Settings& settings, Report& report);
void Overload(const Settings& settings, Report& report);
void GreedyTenant(const Settings& settings, Report& report);
void SharedBatches(const Settings& settings, Report& report);
void ExactlyOnce(const Settings& settings, Report& report);
void IdleCost(const Settings& settings, Report& report);
void Soak(const Settings& settings, Report& report);

struct Scenario {
  const char* name;
  const char* about;
  void (*run)(const Settings&, Report&);
  int phases = 20;         // of a round, at most: see TimeLimit
  bool by_default = true;  // otherwise only when it is named
};
const std::vector<Scenario>& Scenarios();

}  // namespace castor::bench
