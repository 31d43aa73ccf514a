// castor fetch: brings a model from a Hugging Face hub into a directory.
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "client/cli/fetch/fetch.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/credentials.h"
#include "client/metrics/fetch.h"

namespace castor::cli {
namespace {

namespace fs = std::filesystem;

struct FetchFlags {
  std::string source, to;
  bool replace = false;
  Hub hub;
};

// The first of the variables that is set.
std::string Env(std::initializer_list<const char*> names, const std::string& fallback = "") {
  for (const char* name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return fallback;
}

// Reads the hub's variables as huggingface_hub does.
void ReadEnvironment(Hub* hub) {
  const std::string user = Env({"XDG_CACHE_HOME"}, Env({"HOME"}) + "/.cache");
  const std::string home = Env({"HF_HOME"}, user + "/huggingface");
  const std::string value = absl::AsciiStrToUpper(Env({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  hub->offline = value == "1" || value == "ON" || value == "YES" || value == "TRUE";
  hub->endpoint = Env({"HF_ENDPOINT"}, "https://huggingface.co");
  while (hub->endpoint.ends_with('/')) hub->endpoint.pop_back();
  const auto address = client::ParseMetricsAddress(hub->endpoint, /*tls=*/true);
  if (!address.ok() || hub->endpoint.find("://") == std::string::npos) {
    throw UsageError("HF_ENDPOINT: '" + hub->endpoint + "' is not a URL");
  }
  hub->host = address->host;
  const std::string token = Env({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  const std::string file = Env({"HF_TOKEN_PATH"}, home + "/token");
  std::error_code none;
  if (!hub->offline && (!token.empty() || fs::exists(file, none))) {
    client::TokenSource source(token, token.empty() ? file : "");
    hub->authorization = "Authorization: " + OrUsageError(source.Header());
    if (!address->tls &&
        !client::IsOnThisMachine(client::JoinHostPort(address->host, address->port))) {
      throw UsageError("HF_ENDPOINT is not HTTPS, and others could read the token: unset HF_TOKEN");
    }
  }
  if (Env({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}).empty()) {
    throw UsageError("HOME is not set: set HF_HUB_CACHE to the cache's folder");
  }
  hub->cache = fs::path(Env({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, home + "/hub")) /
               ("models--" + absl::StrReplaceAll(hub->repository, {{"/", "--"}}));
}

// Shows how far a file is: on a terminal at once, elsewhere in a line every 30 s.
class FetchProgress {
 public:
  void Show(const HubFile& file, int64_t have) {
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(path_, file.path) != file.path) begun_ = now, first_ = have;
    if (now < shown_ + std::chrono::milliseconds(line_.on() ? 200 : 30'000)) return;
    shown_ = now;
    const std::chrono::duration<double> took = now - begun_;
    const double rate = static_cast<double>(have - first_) / (took.count() + 0.001) + 1;
    const std::string text =
        absl::StrCat(FitText(path_, 32), ": ", FormatBytes(have), " of ", FormatBytes(file.size),
                     ", ", FormatBytes(static_cast<int64_t>(rate)), "/s, ",
                     ClockText(static_cast<double>(file.size - have) / rate), " left");
    line_.on() ? line_.Show(text) : PrintError(text);
  }
  void Clear() { line_.Clear(); }

 private:
  StatusLine line_;
  std::string path_;
  int64_t first_ = 0;
  std::chrono::steady_clock::time_point begun_, shown_ = std::chrono::steady_clock::now();
};

void CheckSpace(const fs::path& folder, int64_t bytes) {
  const auto free = static_cast<int64_t>(fs::space(folder).available);
  if (bytes <= free) return;
  throw UsageError(absl::StrCat("'", folder.string(), "' has ", FormatBytes(free), " free, and ",
                                FormatBytes(bytes), " more are needed"));
}

bool OnOneDisk(const fs::path& a, const fs::path& b) {
  struct stat of_a {
  }, of_b{};
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

int Fetch(FetchFlags* flags) {
  std::smatch parts;
  const std::regex form(R"(hf:(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@([\x21-\x7e]+))?)");
  const bool fits = std::regex_match(flags->source, parts, form);
  const std::string repository = parts[1], name = parts[2].matched ? parts[2].str() : "main";
  if (!fits || !IsSafePath(name) || repository.find("--") != std::string::npos) {
    throw UsageError("'" + flags->source + "' is not hf:ORG/NAME or hf:ORG/NAME@REVISION");
  }
  Hub& hub = flags->hub;
  hub.repository = repository;
  ReadEnvironment(&hub);
  const fs::path to = fs::absolute(flags->to + "/").lexically_normal().parent_path();
  const auto there = ReadDirectory(to);
  const auto has = [&](const std::string& commit) {
    return there && there->repository == repository && there->commit == commit;
  };
  const std::string already = flags->to + ": has it already\n";
  if (has(name)) return WriteText(already);  // without a hub

  FetchProgress progress;
  hub.on_bytes = [&](const HubFile& file, int64_t have) { progress.Show(file, have); };
  const auto cached = hub.offline ? ReadCache(hub, name) : std::nullopt;
  if (hub.offline && !cached) {
    throw UsageError(repository + "@" + name + " is not in " + hub.cache.string() +
                     ": unset HF_HUB_OFFLINE to fetch it");
  }
  const HubRevision revision = cached ? *cached : ListRevision(hub, name);
  if (has(revision.commit)) return WriteText(already);
  std::error_code none;
  if (fs::exists(fs::symlink_status(to)) && !fs::is_empty(to, none) &&
      !(flags->replace && IsOurs(to))) {
    throw UsageError("'" + flags->to +
                     (IsOurs(to) ? "' has another revision, or was changed: --replace replaces it"
                                 : "' was not made by castor fetch: move it, or name another"));
  }
  PrintError(absl::StrCat("fetching ", repository, " at commit ", revision.commit));
  const HubRevision model = FetchModel(hub, revision, name, [&](int64_t size, int64_t missing) {
    PrintError(absl::StrCat("weights: ", FormatBytes(size), ", ", FormatBytes(missing),
                            " of them to fetch"));
    fs::create_directories(to.parent_path());
    CheckSpace(hub.cache, missing);
    if (!OnOneDisk(hub.cache, to.parent_path())) CheckSpace(to.parent_path(), size);
  });
  progress.Clear();
  MakeDirectory(hub, model, to, flags->replace);
  int64_t bytes = 0;
  for (const HubFile& file : model.files) bytes += file.size;
  return WriteText(absl::StrCat(flags->to, ": ", repository, " at commit ", model.commit, ", ",
                                model.files.size(), " files, ", FormatBytes(bytes), "\n"));
}

}  // namespace

Runner AddFetchCommand(CLI::App* command) {
  auto flags = std::make_shared<FetchFlags>();
  command->add_option("model", flags->source, "hf:ORG/NAME or hf:ORG/NAME@REVISION")->required();
  AddOption(command, "Options", "--to", &flags->to, "DIR",
            "The directory to make, which appears when it is complete", FileName())
      ->required();
  command->add_flag("--replace", flags->replace,
                    "Replace what castor fetch has made there from another revision");
  AddOption(command, "Connection", "--stall", &flags->hub.stall_seconds, "TIME",
            "Give up a connection after this time below 1 KiB/s", Seconds(1, 3600))
      ->capture_default_str();
  AddOption(command, "Connection", "--retries", &flags->hub.retries, "N",
            "Repeated requests while no bytes arrive", Number(0, 100))
      ->capture_default_str();
  command->footer(
      "Fetches the files that castor-server reads, and checks their hashes. A directory that has\n"
      "the commit is left as it is; an interrupted fetch goes on where it was. Environment, as\n"
      "for huggingface_hub, which shares the cache: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, "
      "HF_HOME,\n"
      "HF_HUB_CACHE, HF_HUB_OFFLINE; also https_proxy, no_proxy, SSL_CERT_FILE. Exit codes: 1 hub\n"
      "or connection; 2 usage, files or disk.\n"
      "Examples:\n"
      "  castor fetch hf:intfloat/e5-small-v2 --to models/e5\n"
      "  castor fetch hf:ORG/NAME@COMMIT --to models/name     # needs no hub the second time\n");
  return [flags] {
    try {
      return Fetch(flags.get());
    } catch (const fs::filesystem_error& error) {
      throw UsageError(std::string(error.what()) + "; HF_HUB_CACHE and --to name the folders");
    }
  };
}

}  // namespace castor::cli
