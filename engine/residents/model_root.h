// The folder of models that may be loaded while the engine runs. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace castor {

// The folders in `root` that are models by their names and their config.json or modules.json,
// sorted; at most kMaxFolders of them. Empty if there is no such folder.
inline constexpr size_t kMaxFolders = 1000;
std::vector<std::string> FoldersOf(const std::string& root);

// Whether `folder` is one of them.
bool IsFolderOf(const std::string& root, const std::string& folder);

// An upper bound on the weights of a model directory as `source` says that they are served, by the
// headers of its safetensors files. Errors name the file.
absl::StatusOr<int64_t> EstimateWeightBytes(const ModelSource& source);

// The size of those files, which are not opened; 0 if they cannot be found.
int64_t WeightFileBytes(const std::string& directory);

}  // namespace castor
