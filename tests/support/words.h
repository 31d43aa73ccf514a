// Command lines in one string.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace castor::testing {

// {"--device", "cpu"} for "--device cpu". No word may have a space.
inline std::vector<std::string> Words(const std::string& line) {
  std::istringstream in(line);
  return std::vector<std::string>(std::istream_iterator<std::string>(in),
                                  std::istream_iterator<std::string>());
}

}  // namespace castor::testing
