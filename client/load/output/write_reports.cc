#include "client/load/output/write_reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "client/file.h"
#include "client/load/measure/hdr_log.h"
#include "client/load/measure/run_json.h"
#include "client/load/output/csv.h"
#include "client/load/output/html.h"
#include "client/load/output/openmetrics.h"

namespace castor::load {
namespace {

[[noreturn]] void Fail(const std::string& path, const std::string& reason) {
  throw std::runtime_error("cannot write '" + path + "': " + reason);
}

std::string SystemReason(int error) { return std::generic_category().message(error); }

// A file with a name of its own beside `path`, deleted unless it was renamed.
class Draft {
 public:
  explicit Draft(const std::string& path) : path_(path) {
    // The process's number keeps two programs apart, and the count what an earlier one left.
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
      name_ = path + "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + ".part";
      descriptor_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && (errno != EEXIST || attempt == 99)) Fail(path_, SystemReason(errno));
    }
  }
  ~Draft() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void Write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t put = write(descriptor_, content.data(), content.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) Fail(path_, SystemReason(errno));
      content.remove_prefix(static_cast<size_t>(put));
    }
  }

  void Keep() {
    if (fsync(descriptor_) != 0) Fail(path_, SystemReason(errno));
    if (close(std::exchange(descriptor_, -1)) != 0) Fail(path_, SystemReason(errno));
    if (rename(name_.c_str(), path_.c_str()) != 0) Fail(path_, SystemReason(errno));
    name_.clear();
  }

 private:
  const std::string path_;
  std::string name_;  // empty: it is in its place
  int descriptor_ = -1;
};

}  // namespace

ReportPaths ReportPaths::In(const std::string& folder) {
  const std::string stem = (std::filesystem::path(folder) / "run").string();
  return {stem + ".json", stem + ".html", stem + ".csv", stem + ".txt", stem + ".hlog"};
}

void WriteFileAtomically(const std::string& path, std::string_view content) {
  std::error_code error;
  // What a link points to is replaced, not the link.
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) target = path;
  const auto kind = std::filesystem::status(target, error).type();
  if (kind != std::filesystem::file_type::not_found &&
      kind != std::filesystem::file_type::regular) {
    const absl::Status status = client::WriteFile(path, {content});
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
    return;
  }
  if (target.has_parent_path()) {
    std::filesystem::create_directories(target.parent_path(), error);
    if (error) Fail(path, error.message());
  }
  Draft draft(target.string());
  draft.Write(content);
  draft.Keep();
}

void WriteReports(const RunData& run, const Verdict& verdict, const ReportPaths& paths) {
  const std::pair<const std::string&, std::function<std::string()>> reports[] = {
      {paths.json, [&] { return FormatRun(ToJson(run, &verdict)); }},
      {paths.html, [&] { return ReportHtml(run, verdict); }},
      {paths.csv, [&] { return CsvText(run); }},
      {paths.openmetrics, [&] { return OpenMetricsText(run, verdict); }},
      {paths.hdr_log,
       [&] {
         std::ostringstream log;
         WriteHdrLog(run, log);
         return std::move(log).str();
       }},
  };
  std::string errors;
  for (const auto& [path, make] : reports) {
    if (path.empty()) continue;
    try {
      WriteFileAtomically(path, make());
    } catch (const std::exception& error) {
      errors += (errors.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!errors.empty()) throw std::runtime_error(errors);
}

}  // namespace castor::load
