// The content of some files, kept up to date while they change on disk.
//
// Each check reads the files and compares their bytes. That detects every kind of change, also
// Kubernetes's, which swaps a link to a folder. Files that are half written, unreadable or wrong
// are refused as a whole, and the previous content stays.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace castor::server {

// Reads all of them, twice: files that differ between the two readings are being replaced, which is
// ABORTED. Other errors begin with the path.
absl::StatusOr<std::vector<std::string>> ReadTogether(const std::vector<std::string>& paths);

template <typename T>
class LiveFiles {
 public:
  // Makes a T of the files' texts; an error says what is wrong with them.
  using Parse = std::function<absl::StatusOr<T>(const std::vector<std::string>& texts)>;

  // Reads the files for the first time. Those that are named by an empty path count as empty.
  static absl::StatusOr<std::unique_ptr<LiveFiles>> Open(std::vector<std::string> paths,
                                                         Parse parse) {
    auto texts = ReadTogether(paths);
    if (!texts.ok()) return texts.status();
    absl::StatusOr<T> value = parse(*texts);
    if (!value.ok()) return value.status();
    return std::unique_ptr<LiveFiles>(
        new LiveFiles(std::move(paths), std::move(parse), *std::move(texts), *std::move(value)));
  }

  // Any thread. What was returned stays as it is.
  std::shared_ptr<const T> current() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return current_;
  }

  // Reads the files again. True: they have changed, and current() has the new content. An error
  // says why they were refused. One thread at a time.
  absl::StatusOr<bool> Refresh() ABSL_LOCKS_EXCLUDED(mu_) {
    auto texts = ReadTogether(paths_);
    if (absl::IsAborted(texts.status())) return false;  // next time
    if (!texts.ok()) return texts.status();
    if (*texts == texts_) return false;
    absl::StatusOr<T> value = parse_(*texts);
    if (!value.ok()) return value.status();
    auto current = std::make_shared<const T>(*std::move(value));
    texts_ = *std::move(texts);
    MutexLock lock(mu_);
    current_.swap(current);
    return true;
  }

 private:
  LiveFiles(std::vector<std::string> paths, Parse parse, std::vector<std::string> texts, T value)
      : paths_(std::move(paths)),
        parse_(std::move(parse)),
        texts_(std::move(texts)),
        current_(std::make_shared<const T>(std::move(value))) {}

  const std::vector<std::string> paths_;
  const Parse parse_;
  std::vector<std::string> texts_;  // that current_ was made of; Refresh's alone

  mutable Mutex mu_;
  std::shared_ptr<const T> current_ ABSL_GUARDED_BY(mu_);
};

// Files that people write for the server: configuration, certificates, callers.

// The whole of a regular file of at most 1 MiB. INVALID_ARGUMENT says why not, without the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace castor::server
