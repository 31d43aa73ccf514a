// Models of the golden folder, tests/golden/encoder, for programs that have its path.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace castor::testing {

inline const std::string kGolden = CASTOR_GOLDEN_ENCODER "/";

// The folders of these names in `folder`, but for tiny_bert, which is in none.
inline std::vector<ModelSource> GoldenModels(const std::vector<std::string>& names,
                                             const std::string& folder = "") {
  std::vector<ModelSource> models;
  for (const std::string& name : names) {
    models.push_back({name, kGolden + (name == "tiny_bert" ? "" : folder) + name});
  }
  return models;
}

}  // namespace castor::testing
