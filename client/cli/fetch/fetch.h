// castor fetch: models of a Hugging Face hub, by way of the cache that huggingface_hub shares.
// Errors are thrown as Failure and say what to do.
#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace castor::cli {

struct HubFile {
  std::string path{};  // within the repository
  int64_t size = 0;
  std::string hash{};  // SHA-256 of files in LFS, git's SHA-1 of others; names the blob in caches
};

struct HubRevision {
  std::string repository, commit;
  std::vector<HubFile> files{};
};

// A repository of a hub, and its folder in the cache: blobs/HASH, refs/NAME, and links in
// snapshots/COMMIT. castor/COMMIT.json is a HubRevision of which nothing is missing.
struct Hub {
  std::string repository{};     // ORG/NAME
  std::string endpoint{};       // without a slash at its end
  std::string host{};           // for messages
  std::string authorization{};  // a header; empty: none
  std::filesystem::path cache{};
  bool offline = false;
  double stall_seconds = 30;  // below a KiB/s, after which a connection is given up
  int retries = 7;            // of a request, since bytes last arrived
  std::function<void(const HubFile& file, int64_t have)> on_bytes{};
  std::shared_ptr<CURL> easy{curl_easy_init(), curl_easy_cleanup};
};

// ---- hub.cc

HubRevision ListRevision(const Hub& hub, const std::string& name);

// Adds what is missing to the file at `path`, which may hold the first bytes. False if the hub
// sends more than file.size.
bool Download(const Hub& hub, const HubRevision& revision, const HubFile& file,
              const std::string& path);

// ---- store.cc

// Whether `text` is a hash in `digits` hexadecimal digits; without a number, SHA-1 or SHA-256.
bool IsHash(const std::string& text, size_t digits);
bool IsHash(const std::string& text);
// Whether a path stays within the folder that it is joined to.
bool IsSafePath(const std::string& path);

// Finds a revision in the cache. Warns if another program may have left out files.
std::optional<HubRevision> ReadCache(const Hub& hub, const std::string& name);

// Brings the files that the server reads, so that it decides as if all were there, into the cache.
// Checks the hashes of all, also of those that were there. `announce` is called before the first
// byte of weights, with their size and what is missing. Returns the files.
HubRevision FetchModel(const Hub& hub, const HubRevision& revision, const std::string& name,
                       const std::function<void(int64_t size, int64_t missing)>& announce);

// Reads which model castor fetch has made a directory of. Null if it has not, or files have changed
// in size.
bool IsOurs(const std::filesystem::path& directory);
std::optional<HubRevision> ReadDirectory(const std::filesystem::path& directory);

// Makes the directory from the cache, at once or not at all. `replace`: in the place of another.
void MakeDirectory(const Hub& hub, const HubRevision& model, const std::filesystem::path& directory,
                   bool replace);

}  // namespace castor::cli
