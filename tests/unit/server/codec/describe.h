// A request as text, every field of it, so that two can be compared and their difference read.
#pragma once

#include <string>

#include "engine/request.h"

namespace castor::server::twin {

std::string Describe(const AttentionRequest& request);
std::string Describe(const EncodeRequest& request);

}  // namespace castor::server::twin
