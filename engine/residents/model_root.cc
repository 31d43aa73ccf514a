#include "engine/residents/model_root.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "engine/attention/problem.h"
#include "engine/base/regular_file.h"
#include "engine/option_bounds.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using attention::Count;

// Of one file. The format allows 100 MB; encoders have less than 1 MB.
constexpr uint64_t kMaxHeader = uint64_t{16} << 20;

constexpr size_t kMaxFiles = 1000;

// The bytes of the tensors of one file if each element takes `width` bytes; 0: as it is stored.
absl::StatusOr<int64_t> TensorBytes(const std::string& path, int64_t width) {
  const auto fail = [&](const char* problem) {
    return absl::InvalidArgumentError(path + ": " + problem);
  };
  absl::StatusOr<RegularFile> file = RegularFile::Open(path, std::numeric_limits<int64_t>::max());
  if (!file.ok()) return file.status();
  static_assert(std::endian::native == std::endian::little);
  uint64_t size = 0;
  if (pread(file->descriptor(), &size, sizeof(size), 0) != sizeof(size) || size > kMaxHeader ||
      static_cast<int64_t>(size + sizeof(size)) > file->size()) {
    return fail("has no header of safetensors");
  }
  std::string header(size, '\0');
  if (pread(file->descriptor(), header.data(), size, sizeof(size)) != static_cast<ssize_t>(size)) {
    return fail("cannot be read");
  }
  const auto json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail("its header is no JSON object");
  Count total(0);
  for (const auto& [name, tensor] : json.items()) {
    if (name == "__metadata__") continue;
    if (!tensor.is_object() || !tensor.contains("shape") || !tensor["shape"].is_array()) {
      return fail("its header has a tensor without a shape");
    }
    Count elements(1);
    for (const auto& extent : tensor["shape"]) {
      if (!extent.is_number_unsigned()) return fail("its header has a shape that is not of sizes");
      const uint64_t most = std::numeric_limits<int64_t>::max();
      elements = elements * static_cast<int64_t>(std::min(extent.get<uint64_t>(), most));
    }
    total = total + elements * width;
  }
  return total.value();
}

// The transformer's files lie in the directory or in a module's folder, as the modules' own do, and
// adapters two folders deep.
std::vector<fs::path> WeightFiles(const std::string& directory, std::error_code& error) {
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(directory, fs::directory_options::follow_directory_symlink,
                                         error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry.depth() >= 2) entry.disable_recursion_pending();
    const bool named = name.starts_with("model") || name.starts_with("adapter_model");
    if (named && name.ends_with(".safetensors")) {
      files.push_back(entry->path());
    }
    if (files.size() == kMaxFiles) break;
  }
  return files;
}

bool IsModelFolder(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / "config.json", none) || fs::exists(folder / "modules.json", none);
}

}  // namespace

std::vector<std::string> FoldersOf(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (IsFolderOf(root, name)) folders.push_back(std::move(name));
    if (folders.size() == kMaxFolders) break;
  }
  std::ranges::sort(folders);
  return folders;
}

bool IsFolderOf(const std::string& root, const std::string& folder) {
  return !root.empty() && IsModelName(folder) && !folder.starts_with('.') &&
         folder.find('/') == std::string::npos && IsModelFolder(fs::path(root) / folder);
}

absl::StatusOr<int64_t> EstimateWeightBytes(const ModelSource& source) {
  // Models in 8 bits are loaded in float32 first, to compare them.
  const int64_t width = source.dtype == DType::kFloat32 || source.int8 ? 4 : 2;
  std::error_code error;
  Count total(0);
  for (const fs::path& file : WeightFiles(source.directory, error)) {
    const absl::StatusOr<int64_t> bytes = TensorBytes(file.string(), width);
    if (!bytes.ok()) return bytes.status();
    total = total + *bytes;
  }
  if (error) return absl::InvalidArgumentError(source.directory + ": " + error.message());
  return total.value();
}

int64_t WeightFileBytes(const std::string& directory) {
  std::error_code error;
  Count total(0);
  for (const fs::path& file : WeightFiles(directory, error)) {
    const uintmax_t bytes = fs::file_size(file, error);
    if (!error) total = total + static_cast<int64_t>(bytes);
  }
  return total.value();
}

}  // namespace castor
