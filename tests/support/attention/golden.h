// Attention cases computed by the scripts in tests/golden/attention. CASTOR_GOLDEN_DIR must be
// defined.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/attention/elements.h"

namespace castor::attention {

inline std::vector<nlohmann::json> GoldenCases(const std::string& file) {
  std::ifstream stream(CASTOR_GOLDEN_DIR "/attention/" + file);
  return nlohmann::json::parse(stream).get<std::vector<nlohmann::json>>();
}

// A case's numbers are integers in units of 1/64, so that every dtype holds them exactly.
inline void FillFromUnits(const std::vector<int>& units, Elements& elements) {
  ASSERT_EQ(static_cast<int64_t>(units.size()), elements.size());
  for (size_t i = 0; i < units.size(); ++i) elements.Set(static_cast<int64_t>(i), units[i] / 64.0);
}

inline std::string NameOfCase(const testing::TestParamInfo<nlohmann::json>& info) {
  std::string name = info.param["name"];
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

}  // namespace castor::attention
