// A request as text, every field of it, so that two can be compared and their difference read; and
// where its answer is to be written.
#pragma once

#include <optional>
#include <string>

#include "engine/request.h"

namespace castor::server::twin {

std::string Describe(const AttentionRequest& request);
std::string Describe(const EncodeRequest& request);
std::string Describe(const std::optional<FileRange>& output);

}  // namespace castor::server::twin
