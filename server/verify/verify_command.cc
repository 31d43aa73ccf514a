#include "server/verify/verify_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "server/errors.h"
#include "server/small_file.h"
#include "server/verify/manifest.h"

namespace castor::server {
namespace {

constexpr size_t kMaxLine = 1024;   // of a fault: names of files are anybody's
constexpr size_t kMaxFaults = 100;  // that are printed

int Refuse(const std::string& problem) {
  std::fprintf(stderr, "castor-server verify: %s\n", Printable(problem, kMaxLine).c_str());
  return 2;
}

int Verify(const std::string& model, const std::string& manifest_file) {
  const auto text = ReadSmallFile(manifest_file);
  if (!text.ok()) return Refuse(manifest_file + ": " + std::string(text.status().message()));
  const auto manifest = ParseManifest(*text);
  if (!manifest.ok()) {
    return Refuse(manifest_file + ": " + std::string(manifest.status().message()));
  }
  const std::vector<std::string> faults = FaultsOf(model, *manifest);
  if (faults.empty()) {
    std::printf("%s: as in the manifest, files: %zu\n", model.c_str(), manifest->size());
    return 0;
  }
  for (size_t i = 0; i < faults.size() && i < kMaxFaults; ++i) {
    std::fprintf(stderr, "castor-server verify: %s\n", Printable(faults[i], kMaxLine).c_str());
  }
  std::fprintf(stderr, "castor-server verify: %s: faults: %zu\n", model.c_str(), faults.size());
  return 1;
}

}  // namespace

int RunVerifyCommand(int argc, const char* const* argv) {
  std::string model;
  std::string manifest;
  CLI::App app(
      "Checks a model's files against a manifest of SHA-256 digests. Files that are missing, "
      "differ "
      "or are not in the manifest are faults.\n",
      "castor-server verify");
  app.get_formatter()->column_width(34);
  app.add_option("model", model, "A model: a directory, or one file")
      ->required()
      ->type_name("PATH");
  app.add_option("--manifest", manifest, "What sha256sum printed for its files, in its directory")
      ->required()
      ->type_name("FILE");
  app.footer(
      "Exit codes: 0 all files as in the manifest, 1 not, 2 bad arguments or manifest.\n"
      "Example:\n"
      "  (cd model && find . -type f -exec sha256sum {} +) > SHA256SUMS\n"
      "  castor-server verify model --manifest SHA256SUMS\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::Error& error) {
    return Refuse(std::string(error.what()) + "; see castor-server verify --help");
  }
  try {
    return Verify(model, manifest);
  } catch (const std::exception& error) {  // memory
    std::fprintf(stderr, "castor-server verify: %s\n", error.what());
    return 1;
  }
}

}  // namespace castor::server
