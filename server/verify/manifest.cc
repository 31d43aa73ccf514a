#include "server/verify/manifest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace castor::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHexDigits = 64;
constexpr size_t kReadBytes = 1 << 20;

// The path in the form of the manifest's keys; nothing if it leads out of the model.
std::optional<std::string> Inside(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  if (normal.empty() || normal.is_absolute() || !normal.has_filename()) return std::nullopt;
  if (*normal.begin() == ".." || *normal.begin() == ".") return std::nullopt;
  return normal.generic_string();
}

// SHA-256 of a file's bytes, or the reason why there is none.
absl::StatusOr<Digest> DigestOfFile(const fs::path& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex2(context.get(), EVP_sha256(), nullptr) != 1) {
    return absl::InternalError("OpenSSL has no SHA-256");
  }
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return absl::UnavailableError(std::strerror(errno));
  std::string buffer(kReadBytes, '\0');
  ssize_t got = 0;
  bool hashed = true;
  while (hashed && (got = read(file, buffer.data(), buffer.size())) > 0) {
    hashed = EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(got)) == 1;
  }
  const int error = errno;
  close(file);
  if (got < 0) return absl::UnavailableError(std::strerror(error));
  Digest digest{};
  if (!hashed || EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    return absl::InternalError("OpenSSL cannot compute SHA-256");
  }
  return digest;
}

// What is there, by path: files, and everything that is neither file nor folder.
absl::StatusOr<std::map<std::string, fs::path>> Files(const fs::path& model) {
  std::map<std::string, fs::path> files;
  std::error_code error;
  const fs::file_status status = fs::status(model, error);
  if (!fs::exists(status)) return absl::NotFoundError("there is nothing");
  if (!fs::is_directory(status)) {
    files.emplace(model.filename().generic_string(), model);
    return files;
  }
  // A folder that this user may not read, such as lost+found, the server cannot read either.
  fs::recursive_directory_iterator entry(model, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (fs::is_directory(entry->symlink_status(ignored))) continue;
    files.emplace(entry->path().lexically_relative(model).generic_string(), entry->path());
  }
  if (error) return absl::UnavailableError(error.message());
  return files;
}

// What is wrong with one file; nothing if it is as expected.
std::optional<std::string> FaultOf(const fs::path& path, const Digest* expected) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return "is a link to a folder";
  if (!fs::is_regular_file(status)) return "is no regular file";
  if (expected == nullptr) return "is not in the manifest";
  const absl::StatusOr<Digest> digest = DigestOfFile(path);
  if (!digest.ok()) return absl::StrCat("cannot be read: ", digest.status().message());
  if (*digest == *expected) return std::nullopt;
  return absl::StrCat("is not what the manifest says: SHA-256 ", ToHex(*digest));
}

}  // namespace

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  Manifest manifest;
  int number = 0;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    const auto bad = [number](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what));
    };
    const std::optional<Digest> digest = FromHex(line.substr(0, kHexDigits));
    if (!digest || line.size() < kHexDigits + 3 || line[kHexDigits] != ' ' ||
        (line[kHexDigits + 1] != ' ' && line[kHexDigits + 1] != '*')) {
      return bad("is not what sha256sum prints: 64 hexadecimal digits, two spaces, a path");
    }
    const std::optional<std::string> path = Inside(line.substr(kHexDigits + 2));
    if (!path) return bad("the path is not one of a file inside the model");
    if (!manifest.emplace(*path, *digest).second) return bad("names a file for the second time");
  }
  if (manifest.empty()) return absl::InvalidArgumentError("names no file");
  return manifest;
}

std::vector<std::string> FaultsOf(const fs::path& model, const Manifest& manifest) {
  const auto files = Files(model);
  if (!files.ok()) return {absl::StrCat(model.string(), ": ", files.status().message())};
  std::map<std::string, std::string> faults;
  for (const auto& [name, digest] : manifest) {
    if (!files->contains(name)) faults[name] = "is missing";
  }
  for (const auto& [name, path] : *files) {
    const auto expected = manifest.find(name);
    auto fault = FaultOf(path, expected == manifest.end() ? nullptr : &expected->second);
    if (fault) faults[name] = *std::move(fault);
  }
  std::vector<std::string> lines;
  for (const auto& [name, fault] : faults) lines.push_back(absl::StrCat(name, ": ", fault));
  return lines;
}

}  // namespace castor::server
