// The build's version and commit.
#pragma once

#include <string_view>

namespace castor::server {

std::string_view Version();    // "0.1.0"
std::string_view GitCommit();  // short hash, or "unknown" outside a checkout

}  // namespace castor::server
