#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "client/cli/fetch/fetch.h"
#include "client/file.h"

namespace castor::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxJson = size_t{64} << 20;
constexpr const char* kMarker = ".castor_fetch.json";
constexpr const char* kIndex = "model.safetensors.index.json";

// The files other than weights that castor-server reads or looks for; fetch_files.py compares them
// with its sources. The server reads no .pt, but tells how to convert it.
constexpr std::string_view kNames =
    " config.json modules.json router_config.json config_sentence_transformers.json "
    "castor_rerank.json "
    "sentence_bert_config.json sentence_roberta_config.json sentence_distilbert_config.json "
    "sentence_camembert_config.json sentence_albert_config.json sentence_xlm-roberta_config.json "
    "sentence_xlnet_config.json adapter_config.json tokenizer.json tokenizer_config.json "
    "special_tokens_map.json added_tokens.json vocab.txt vocab.json merges.txt chat_template.jinja "
    "artifact.metadata model.safetensors.index.json sparse_linear.safetensors "
    "colbert_linear.safetensors sparse_linear.pt colbert_linear.pt ";

std::string Reason() { return std::strerror(errno); }

bool HasSize(const fs::path& path, const HubFile& file) {
  std::error_code error;
  return fs::file_size(path, error) == static_cast<uintmax_t>(file.size) && !error;
}

// Whether size and hash are right. The file is read back, so it does not matter who has written it,
// and whether locks work there.
bool IsIntact(const fs::path& path, const HubFile& file) {
  if (!HasSize(path, file)) return false;
  const bool git = file.hash.size() == 40;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), git ? EVP_sha1() : EVP_sha256(), nullptr);
  std::string block = git ? absl::StrCat("blob ", file.size) + '\0' : "";
  client::InputFile input = OrUsageError(client::InputFile::Open(path));
  do {
    EVP_DigestUpdate(context.get(), block.data(), block.size());
    block.clear();
    OrUsageError(input.Append(size_t{1} << 20, &block));
  } while (!block.empty());
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
  return absl::BytesToHexString(digest.substr(0, size)) == file.hash;
}

fs::path BlobOf(const Hub& hub, const HubFile& file) { return hub.cache / "blobs" / file.hash; }
// Python's own parts have other names: it appends to them under locks of its own.
fs::path PartOf(const fs::path& blob) { return blob.string() + ".castor.incomplete"; }

const HubFile* Find(const HubRevision& revision, const std::string& path) {
  const auto found = std::find_if(revision.files.begin(), revision.files.end(),
                                  [&](const HubFile& file) { return file.path == path; });
  return found == revision.files.end() ? nullptr : &*found;
}

// Keeps other processes out of a folder, if they ask, while the result lives.
std::shared_ptr<void> Lock(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw UsageError("cannot open " + folder.string() + ": " + Reason());
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    PrintError("waiting for another process in " + folder.string());
    while (flock(descriptor, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  return {nullptr, [descriptor](void*) { close(descriptor); }};
}

void Sync(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);  // no such call
  if (!done) throw UsageError("cannot write " + path.string() + ": " + Reason());
  close(descriptor);
}

// Writes a file at once or not at all, and not if it is so already: the folder may be read-only.
void WriteWhole(const fs::path& file, const std::string& text) {
  if (const auto old = client::ReadFile(file, kMaxJson); old.ok() && *old == text) return;
  fs::create_directories(file.parent_path());
  const fs::path temporary = file.string() + ".castor.tmp";
  OrUsageError(client::WriteFile(temporary, {text}));
  Sync(temporary);
  fs::rename(temporary, file);
  Sync(file.parent_path());
}

std::string RevisionText(const HubRevision& revision) {
  Json json = {{"repository", revision.repository}, {"commit", revision.commit}};
  for (const HubFile& file : revision.files) {
    const char* const kind = file.hash.size() == 64 ? "sha256" : "git_sha1";
    json["files"][file.path] = {{"size", file.size}, {kind, file.hash}};
  }
  return json.dump(1) + "\n";
}

std::optional<HubRevision> ReadRevision(const fs::path& file) try {
  const auto text = client::ReadFile(file, kMaxJson);
  if (!text.ok()) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(*text);
  HubRevision revision{.repository = json.at("repository"), .commit = json.at("commit")};
  for (const auto& [path, about] : json.at("files").items()) {
    const std::string hash = about.contains("sha256") ? about["sha256"] : about.at("git_sha1");
    if (!IsSafePath(path) || !IsHash(hash)) return std::nullopt;
    revision.files.push_back({.path = path, .size = about.at("size"), .hash = hash});
  }
  return revision;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

// Brings a blob into the cache, and checks it even if it was there.
void Obtain(const Hub& hub, const HubRevision& revision, const HubFile& file) {
  const fs::path blob = BlobOf(hub, file), part = PartOf(blob);
  if (fs::exists(blob)) {
    if (IsIntact(blob, file)) return;
    PrintError(blob.string() + " (" + file.path + ") is damaged");
    if (!hub.offline) fs::remove(blob);
  }
  if (hub.offline) {
    throw UsageError(file.path + ": is not in the cache, or damaged; unset HF_HUB_OFFLINE");
  }
  fs::create_directories(blob.parent_path());
  for (int attempt = 0; attempt < 2; ++attempt) {  // a proxy may have answered in the hub's place
    if (Download(hub, revision, file, part) && IsIntact(part, file)) {
      Sync(part);
      fs::rename(part, blob);
      return Sync(blob.parent_path());
    }
    fs::remove(part);
  }
  throw Failure(absl::StrCat(file.path, ": the hub has sent other contents than it names, twice (",
                             file.size, " bytes, ", file.hash, "); they are deleted"),
                kServerError);
}

// Tells Python and ReadCache of what is complete.
void Finish(const Hub& hub, const std::string& name, const HubRevision& model) {
  for (const HubFile& file : model.files) {
    const fs::path link = hub.cache / "snapshots" / model.commit / file.path;
    std::error_code error;  // for Python alone; some file systems have no links
    if (fs::exists(link, error)) continue;
    fs::create_directories(link.parent_path(), error);
    fs::remove(link, error);
    fs::create_symlink(BlobOf(hub, file).lexically_relative(link.parent_path()), link, error);
  }
  WriteWhole(hub.cache / "castor" / (model.commit + ".json"), RevisionText(model));
  if (name != model.commit) WriteWhole(hub.cache / "refs" / name, model.commit);
}

}  // namespace

bool IsHash(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}
bool IsHash(const std::string& text) { return IsHash(text, 40) || IsHash(text, 64); }

bool IsSafePath(const std::string& path) {
  const std::string around = "/" + path + "/";
  return path.find_first_of(std::string_view("\\\0", 2)) == std::string::npos &&
         around.find("//") == std::string::npos && around.find("/./") == std::string::npos &&
         around.find("/../") == std::string::npos;
}

std::optional<HubRevision> ReadCache(const Hub& hub, const std::string& name) {
  const auto ref = client::ReadFile(hub.cache / "refs" / name, 100);
  const std::string commit = ref.ok() ? *ref : name;
  if (!IsHash(commit, 40)) return std::nullopt;
  if (auto found = ReadRevision(hub.cache / "castor" / (commit + ".json"))) return found;
  HubRevision found{.repository = hub.repository, .commit = commit};
  const fs::path snapshot = hub.cache / "snapshots" / commit;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    HubFile file{.path = it->path().lexically_relative(snapshot)};
    std::error_code none;
    file.size = static_cast<int64_t>(fs::file_size(it->path(), none));
    if (!none) file.hash = fs::read_symlink(it->path(), none).filename();
    if (IsHash(file.hash)) found.files.push_back(file);
  }
  if (found.files.empty()) return std::nullopt;
  PrintError("warning: " + snapshot.string() + " is another program's, and taken to be complete");
  return found;
}

HubRevision FetchModel(const Hub& hub, const HubRevision& revision, const std::string& name,
                       const std::function<void(int64_t size, int64_t missing)>& announce) {
  fs::create_directories(hub.cache);
  const auto lock = hub.offline ? nullptr : Lock(hub.cache);
  const auto fail = [](const std::string& what) { throw Failure(what, kServerError); };
  const auto read = [&](const std::string& path) {
    const HubFile* const file = Find(revision, path);
    if (file == nullptr) return nlohmann::json();
    Obtain(hub, revision, *file);
    const std::string text = OrUsageError(client::ReadFile(BlobOf(hub, *file), kMaxJson));
    nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) fail(path + ": is not JSON");
    return json;
  };
  HubRevision model{.repository = revision.repository, .commit = revision.commit};
  std::vector<HubFile> weights;
  try {
    std::set<std::string> folders;
    for (const nlohmann::json& module : read("modules.json")) {
      const std::string path = module.at("path");
      folders.insert(path.empty() ? "" : path + "/");
    }
    if (folders.empty()) folders = {""};  // a transformer without modules
    for (const std::string& folder : std::set(folders)) {
      const nlohmann::json router = read(folder + "router_config.json");
      if (!router.is_object()) continue;
      for (const auto& [name, type] : router.at("types").items()) {
        folders.insert(folder + name + "/");
      }
    }
    for (const HubFile& file : revision.files) {
      const size_t slash = file.path.rfind('/') + 1;  // 0 without one
      const std::string folder = file.path.substr(0, slash), leaf = file.path.substr(slash);
      // Adapters lie at the top, or each in a folder of `adapters`.
      const bool adapters = slash == 0 || folder.find("adapters/") != std::string::npos;
      if (!adapters && !folders.contains(folder)) continue;
      if (adapters && leaf == "adapter_model.safetensors") {
        weights.push_back(file);
      } else if (kNames.find(" " + leaf + " ") != std::string_view::npos) {
        model.files.push_back(file);
      }
    }
    for (const std::string& folder : folders) {
      const auto has = [&](const std::string& name) { return Find(revision, folder + name); };
      std::set<std::string> names;
      if (has("model.safetensors") != nullptr) {
        names = {"model.safetensors"};
      } else if (has(kIndex) != nullptr) {
        const nlohmann::json index = read(folder + kIndex);
        for (const auto& shard : index.at("weight_map")) names.insert(shard);
      } else if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json")) {
        fail(folder +
             "pytorch_model.bin: pickles are not read, and there is no model.safetensors: take a "
             "revision that has it (the hub's pull requests are @refs/pr/N), or save the model "
             "anew");
      }
      for (const std::string& name : names) {
        if (!has(name)) fail(folder + kIndex + ": weight_map: there is no " + folder + name);
        weights.push_back(*has(name));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail("modules.json or " + std::string(kIndex) + ": " + error.what());
  }
  if (weights.empty()) fail(revision.repository + " has no model.safetensors");
  for (const HubFile& file : model.files) Obtain(hub, revision, file);
  int64_t size = 0, missing = 0;
  for (const HubFile& file : weights) {
    size += file.size;
    std::error_code none;
    const auto have = static_cast<int64_t>(fs::file_size(PartOf(BlobOf(hub, file)), none));
    if (!HasSize(BlobOf(hub, file), file)) missing += file.size - (none ? 0 : have);
  }
  announce(size, missing);
  for (const HubFile& file : weights) Obtain(hub, revision, file);
  model.files.insert(model.files.end(), weights.begin(), weights.end());
  if (!hub.offline) Finish(hub, name, model);
  return model;
}

bool IsOurs(const fs::path& directory) { return fs::exists(directory / kMarker); }

std::optional<HubRevision> ReadDirectory(const fs::path& directory) {
  std::optional<HubRevision> model = ReadRevision(directory / kMarker);
  const auto same = [&](const HubFile& file) { return HasSize(directory / file.path, file); };
  const bool whole = model && std::all_of(model->files.begin(), model->files.end(), same);
  return whole ? model : std::nullopt;
}

void MakeDirectory(const Hub& hub, const HubRevision& model, const fs::path& directory,
                   bool replace) {
  const fs::path parent = directory.parent_path();
  const fs::path made = parent / ("." + directory.filename().string() + ".castor-new");
  fs::create_directories(parent);
  const auto lock = Lock(parent);
  const auto there = ReadDirectory(directory);
  if (there && there->commit == model.commit) return;  // another process was faster
  fs::remove_all(made);                                // of a process that was killed
  const absl::Cleanup cleans = [&] {
    std::error_code error;
    fs::remove_all(made, error);
  };
  for (const HubFile& file : model.files) {
    const fs::path blob = BlobOf(hub, file), to = made / file.path;
    fs::create_directories(to.parent_path());
    // Weights are links where that is possible. Settings are copies, since people edit them.
    std::error_code error = std::make_error_code(std::errc::not_supported);
    if (to.extension() == ".safetensors") fs::create_hard_link(fs::canonical(blob), to, error);
    if (error) fs::copy_file(blob, to);
    Sync(to);
    Sync(to.parent_path());
  }
  WriteWhole(made / kMarker, RevisionText(model));
  const bool exchange = replace && fs::exists(directory);
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, directory.c_str(),
                exchange ? RENAME_EXCHANGE : 0) != 0) {
    throw UsageError(absl::StrCat("cannot make ", directory.string(), ": ", Reason(),
                                  errno == EBUSY ? "; name a folder within this mount point"
                                  : exchange     ? "; remove it first"
                                                 : ""));
  }
  Sync(parent);
}

}  // namespace castor::cli
