// A manifest says what a model's files must be: their names and SHA-256, as `sha256sum` prints
// them. Any thread; everything here reads and hashes on the caller's.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/auth/token.h"

namespace castor::server {

// By path, relative to the model, with '/' between its parts.
using Manifest = std::map<std::string, Digest>;

// Lines of 64 hexadecimal digits, two characters between, and a path; empty lines and lines with
// '#' are skipped. INVALID_ARGUMENT names the line that is none, leaves the model or repeats a
// path.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

// Compares what lies at `model`, a folder or one file, with the manifest, in both directions: a
// file that the manifest does not name is a fault, since a server would read it. Links to files
// count as what they lead to; links to folders are faults. A fault is "PATH: what is wrong", in
// order of the paths; none: all is as it should be.
std::vector<std::string> FaultsOf(const std::filesystem::path& model, const Manifest& manifest);

}  // namespace castor::server
