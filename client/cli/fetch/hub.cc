#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "client/cli/fetch/fetch.h"
#include "client/credentials.h"

namespace castor::cli {
namespace {

constexpr int64_t kMaxAnswer = int64_t{64} << 20;  // a list of some 200,000 files
constexpr int64_t kMaxSize = int64_t{1} << 50;     // of a file; sums stay far from overflow
constexpr curl_off_t kLongestWait = 300;           // seconds: a window of the hub's rate limits

std::string Escape(const std::string& text) {
  const std::unique_ptr<char, decltype(&curl_free)> escaped(
      curl_easy_escape(nullptr, text.data(), static_cast<int>(text.size())), curl_free);
  return escaped.get();
}

std::string HeaderOf(CURL* easy, const char* name) {
  curl_header* found = nullptr;
  return curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : "";
}

// Where an answer goes: a file, or a text.
struct Body {
  std::FILE* file = nullptr;  // unbuffered
  int64_t most = kMaxAnswer, have = 0;
  std::function<void(int64_t)> on_bytes = [](int64_t) {};
  bool too_long = false;
  int write_error = 0;
  std::string text{};

  static size_t Take(char* data, size_t, size_t size, void* context) {
    Body& body = *static_cast<Body*>(context);
    body.too_long = body.have + static_cast<int64_t>(size) > body.most;
    if (body.too_long) return 0;
    if (body.file == nullptr) body.text.append(data, size);
    if (body.file != nullptr && std::fwrite(data, 1, size, body.file) != size) {
      body.write_error = errno;
      return 0;
    }
    body.have += static_cast<int64_t>(size);
    body.on_bytes(body.have);
    return size;
  }

  void Restart() {
    have = 0;
    text.clear();
    if (file != nullptr && ftruncate(fileno(file), 0) != 0) write_error = errno;
  }
};

// Sends one request. Returns a problem that another may mend; empty: none. `what`: for errors.
std::string TryToGet(const Hub& hub, const std::string& path, const std::string& what, Body* body) {
  CURL* const easy = hub.easy.get();
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  const auto fail = [&](const auto&... why) {
    throw Failure(absl::StrCat(what, ": ", why...), kServerError);
  };
  const std::string authorities = client::AuthoritiesOf({});
  char error[CURL_ERROR_SIZE] = "";
  // curl sends it to no other host, port or scheme after a redirect.
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      hub.authorization.empty() ? nullptr : curl_slist_append(nullptr, hub.authorization.c_str()),
      curl_slist_free_all);
  curl_easy_reset(easy);  // connections stay
  set(CURLOPT_URL, (hub.endpoint + path).c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, hub.endpoint.starts_with("https:") ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * std::min(15.0, hub.stall_seconds)));
  set(CURLOPT_LOW_SPEED_LIMIT, 1024L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(hub.stall_seconds));
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  set(CURLOPT_USERAGENT, "castor");
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(body->have));
  set(CURLOPT_WRITEFUNCTION, Body::Take);
  set(CURLOPT_WRITEDATA, body);
  set(CURLOPT_ERRORBUFFER, error);
  const CURLcode code = curl_easy_perform(easy);
  set(CURLOPT_ERRORBUFFER, nullptr);
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  // A server without ranges, or a file that ends before our part does.
  if (code == CURLE_RANGE_ERROR || status == 416) body->Restart();
  if (body->write_error != 0) {
    throw UsageError(absl::StrCat(what, ": cannot write to the cache: ",
                                  std::strerror(body->write_error), "; what has arrived is kept"));
  }
  if (body->too_long) return "";
  if (code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_UNSUPPORTED_PROTOCOL ||
      code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    fail(error, "; check HF_ENDPOINT and SSL_CERT_FILE");
  }
  const std::string answer = absl::StrCat(hub.host, " answers with HTTP status ", status);
  if (status == 408 || status == 416 || status == 429 || status >= 500) return answer;
  if (status >= 300) {
    const bool gated = status == 403 || HeaderOf(easy, "X-Error-Code") == "GatedRepo";
    const std::string says = HeaderOf(easy, "X-Error-Message");
    const std::string page = hub.endpoint + "/" + hub.repository;
    fail(answer, says.empty() ? "" : " (" + says + ")", "; ",
         gated           ? "accept the license at " + page + ", and set HF_TOKEN"
         : status == 401 ? "check the name, and HF_TOKEN if the repository is private"
                         : "check the name and the revision");
  }
  if (code != CURLE_OK) return *error != '\0' ? error : curl_easy_strerror(code);
  if (body->file == nullptr || body->have == body->most) return "";
  return absl::StrCat("the answer ends after ", body->have, " of ", body->most, " bytes");
}

void Get(const Hub& hub, const std::string& path, const std::string& what, Body* body) {
  using std::chrono::milliseconds;
  int64_t best = body->have;
  for (int failures = 0;;) {
    if (body->file == nullptr) body->Restart();
    const std::string problem = TryToGet(hub, path, what, body);
    if (problem.empty()) return;
    if (body->have > std::exchange(best, std::max(best, body->have))) failures = 0;
    curl_off_t wait = 0;  // seconds
    curl_easy_getinfo(hub.easy.get(), CURLINFO_RETRY_AFTER, &wait);
    const std::string text =
        absl::StrCat(what, ": ", problem, wait > 0 ? absl::StrCat("; wait ", wait, " s") : "");
    if (failures++ >= hub.retries || wait > kLongestWait) {
      throw Failure(text +
                        "; check the network and HF_ENDPOINT, or try later: what has arrived is "
                        "kept",
                    kServerError);
    }
    if (wait > 0) PrintError(text);
    std::this_thread::sleep_for(wait > 0 ? milliseconds(1000 * wait)
                                         : milliseconds(250 << std::min(failures - 1, 6)));
  }
}

}  // namespace

HubRevision ListRevision(const Hub& hub, const std::string& name) {
  const std::string what = hub.repository + "@" + name;
  Body body;
  Get(hub, absl::StrCat("/api/models/", hub.repository, "/revision/", Escape(name), "?blobs=true"),
      what, &body);
  const auto expect = [&](bool holds, const std::string& key) {
    if (!holds) throw Failure(what + ": HF_ENDPOINT's answer is no hub's: " + key, kServerError);
  };
  expect(!body.too_long, "it exceeds 64 MiB");
  HubRevision revision{.repository = hub.repository, .commit = ""};
  try {
    const nlohmann::json json = nlohmann::json::parse(body.text);
    revision.commit = json.at("sha").get<std::string>();
    expect(IsHash(revision.commit, 40), "sha");
    for (const nlohmann::json& each : json.at("siblings")) {
      const bool lfs = each.contains("lfs") && each["lfs"].is_object();
      const HubFile file{.path = each.at("rfilename"),
                         .size = (lfs ? each["lfs"] : each).at("size"),
                         .hash = lfs ? each["lfs"].at("sha256") : each.at("blobId")};
      expect(IsSafePath(file.path), "rfilename '" + file.path + "' leads out of the folder");
      expect(file.size >= 0 && file.size <= kMaxSize, file.path + ": size");
      expect(IsHash(file.hash), file.path + ": blobId or sha256");
      revision.files.push_back(file);
    }
  } catch (const nlohmann::json::exception& error) {
    expect(false, error.what());
  }
  return revision;
}

bool Download(const Hub& hub, const HubRevision& revision, const HubFile& file,
              const std::string& path) {
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> part(std::fopen(path.c_str(), "abe"),
                                                                std::fclose);
  if (part == nullptr) throw UsageError("cannot write '" + path + "': " + std::strerror(errno));
  std::setvbuf(part.get(), nullptr, _IONBF, 0);
  Body body{.file = part.get(),
            .most = file.size,
            .have = std::ftell(part.get()),
            .on_bytes = [&](int64_t have) { hub.on_bytes(file, have); }};
  if (body.have > body.most) body.Restart();
  if (body.have < body.most) {
    Get(hub,
        absl::StrCat("/", revision.repository, "/resolve/", revision.commit, "/",
                     absl::StrReplaceAll(Escape(file.path), {{"%2F", "/"}})),
        file.path, &body);
  }
  return !body.too_long;
}

}  // namespace castor::cli
