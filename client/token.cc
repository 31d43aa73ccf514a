#include "client/token.h"

#include <algorithm>
#include <utility>

#include "client/file.h"

namespace castor::client {
namespace {

constexpr size_t kLongestToken = 16 << 10;

// `from` says where it is from, for the error.
absl::StatusOr<std::string> HeaderOf(std::string token, const std::string& from) {
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) return absl::FailedPreconditionError(from + " is empty");
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!visible || token.size() > kLongestToken) {
    return absl::FailedPreconditionError(
        from +
        " contains no token: it must be visible ASCII characters on one line, at most 16 KiB");
  }
  return "Bearer " + token;
}

absl::StatusOr<std::string> ReadHeader(const std::string& path) {
  auto file = InputFile::Open(path);
  std::string token;
  absl::Status status = file.status();
  if (file.ok()) status = file->Append(kLongestToken + 3, &token);  // and the end of its line
  if (!status.ok()) return absl::FailedPreconditionError(status.message());
  return HeaderOf(std::move(token), "the token file '" + path + "'");
}

}  // namespace

TokenSource::TokenSource(std::string token, std::string file)
    : token_(std::move(token)), file_(std::move(file)) {}

absl::StatusOr<std::string> TokenSource::Header(Time now) {
  if (empty()) return std::string();
  if (file_.empty()) return HeaderOf(token_, "the token");
  const std::lock_guard<std::mutex> lock(mu_);
  if (!header_.empty() && now - read_ < kFresh) return header_;
  absl::StatusOr<std::string> header = ReadHeader(file_);
  if (header.ok()) header_ = *std::move(header);
  if (header_.empty()) return header.status();
  read_ = now;
  return header_;
}

}  // namespace castor::client
