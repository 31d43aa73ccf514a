// What all outputs derive from a run alike, so that no two of them can disagree.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// The percentiles that tables show; the greatest value stands beside them.
inline constexpr std::array<double, 4> kShownQuantiles = {0.5, 0.9, 0.99, 0.999};

// A stage of a request, in the order of its life.
struct StageName {
  const char* name;   // for people: "copy in"
  const char* label;  // for programs: "copy_in"
  Histogram Stages::*histogram;
};
inline constexpr std::array<StageName, 6> kStages = {{
    {"network", "network", &Stages::network},
    {"decode", "decode", &Stages::decode},
    {"queue", "queue", &Stages::queue},
    {"copy in", "copy_in", &Stages::copy_in},
    {"compute", "compute", &Stages::compute},
    {"copy out", "copy_out", &Stages::copy_out},
}};

// By class: the sum of its cells at all endpoints, less costly than run.OfClass() for each.
std::vector<Cell> ByClass(const RunData& run);

// The name of a class or endpoint; "class 3" where the run has none.
std::string ClassName(const RunData& run, size_t cls);
std::string EndpointName(const RunData& run, size_t endpoint);

// The findings that failed.
std::vector<Finding> FailedOf(const std::vector<Finding>& findings);

// "VALID", or "INVALID: client-lag, client-cpu"; "objectives met", "objectives MISSED: 1 of 3", or
// "no objectives".
std::string ValidityText(const Verdict& verdict);
std::string ObjectivesText(const Verdict& verdict);

// "open loop, 200 requests/s", "closed loop".
std::string LoopText(const RunData& run);

}  // namespace castor::load
