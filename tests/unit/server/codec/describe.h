// A request as text, with every field and where its answer is to be written, so that two requests
// can be compared and their difference can be read.
#pragma once

#include <optional>
#include <string>

#include "engine/request.h"

namespace castor::server::twin {

std::string Describe(const AttentionRequest& request);
std::string Describe(const EncodeRequest& request);
std::string Describe(const std::optional<FileRange>& output);

}  // namespace castor::server::twin
