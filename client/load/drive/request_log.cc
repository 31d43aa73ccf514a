#include "client/load/drive/request_log.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"

namespace castor::load {

RequestLog::RequestLog(const std::string& file, int64_t begin_unix_ns)
    : file_(std::fopen(file.c_str(), "we")) {
  if (file_ == nullptr) {
    throw cli::UsageError("cannot write " + file + ": " + std::strerror(errno));
  }
  std::fprintf(file_, "{\"begin_unix_ns\":%" PRId64 "}\n", begin_unix_ns);
}

RequestLog::~RequestLog() { Close(); }

void RequestLog::Write(const std::string& cls, size_t endpoint, Outcome outcome, int64_t at_ns,
                       int64_t sent_ns, int64_t done_ns) {
  const std::string name = nlohmann::json(cls).dump();
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return;
  const int written =
      std::fprintf(file_,
                   "{\"intended_ns\":%" PRId64 ",\"sent_ns\":%" PRId64 ",\"done_ns\":%" PRId64
                   ",\"class\":%s,\"endpoint\":%zu,\"outcome\":\"%s\"}\n",
                   at_ns, sent_ns, done_ns, name.c_str(), endpoint, NameOf(outcome));
  failed_ = failed_ || written < 0;
}

bool RequestLog::Close() {
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return !failed_;
  failed_ = std::fclose(file_) != 0 || failed_;
  file_ = nullptr;
  return !failed_;
}

}  // namespace castor::load
