// What servers counted during a run: their metrics, read before and after.
#pragma once

#include <string>
#include <vector>

#include "client/load/measure/run_data.h"

namespace castor::load {

// One for each endpoint; `addresses` are those of their metrics, or empty: nobody is asked. Blocks.
std::vector<ServerCounts> AskServers(const std::vector<std::string>& addresses, size_t endpoints);

// Reads the metrics of those who answered before. A server counts a call when it has ended, which
// may be a moment after its answer has come: this waits until the counts stand still, half a second
// at most.
void AskAgain(std::vector<ServerCounts>& servers);

}  // namespace castor::load
