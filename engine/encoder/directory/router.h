// sentence-transformers' Router, as inference-free SPLADE models have it: a masked language model
// reads documents, and a table of weights by token makes queries.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/directory.h"

namespace castor::encoder {

// A module of a pipeline.
struct Module {
  std::string type;  // the last part of its Python name, such as "Pooling"
  std::string path;  // relative to the model directory, may be empty
  bool custom = false;
};

// Whether `path` is empty or names a folder next to modules.json, and cannot lead elsewhere.
bool IsPlainFolder(const std::string& path);

// Reads the router_config.json of `folder`. Gives `directory` its routes, and the table as its
// `lookup_route`, and returns the modules of the other route. Requires that prompts are read.
absl::StatusOr<std::vector<Module>> ReadRouter(const std::string& folder, Directory* directory);

}  // namespace castor::encoder
