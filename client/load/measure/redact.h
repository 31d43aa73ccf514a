// Keeps what opens a server's door out of files that are handed around.
#pragma once

#include <string>
#include <string_view>

namespace castor::load {

// A workload's TOML with the value of every key `token` replaced; comments and the rest stay as
// they are. Text that is no TOML, in which tokens cannot be found, is left out as a whole.
std::string RedactTokens(std::string_view workload_toml);

}  // namespace castor::load
