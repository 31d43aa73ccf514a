#include "server/record/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/logging.h"

namespace castor::server {
namespace {

constexpr size_t kMaxPending = 4 << 20;            // bytes
constexpr size_t kMaxLine = 1 << 17;               // of readers it is 256 KiB
constexpr std::chrono::milliseconds kGather{100};  // between two writes

}  // namespace

Recorder::~Recorder() {
  if (!writer_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  writer_.join();
}

absl::Status Recorder::Start(const std::string& path, int64_t max_bytes) {
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError("--record: cannot make '" + path + "': " + why);
  };
  // Opening a pipe would wait for its reader; do not.
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0) return refuse(std::strerror(errno));
  struct stat about {};
  std::string why;
  if (fstat(file, &about) != 0 || (S_ISREG(about.st_mode) && fchmod(file, 0600) != 0)) {
    why = std::strerror(errno);
  } else if (!S_ISREG(about.st_mode)) {
    why = "it is there, and no regular file";
  } else if (about.st_size > 0) {
    why = "it is there, and recordings are never overwritten; choose another name";
  }
  if (!why.empty()) {
    close(file);
    return refuse(why);
  }
  path_ = path;
  max_bytes_ = max_bytes;
  file_ = file;
  begin_ = std::chrono::steady_clock::now();
  on_ = true;
  writer_ = std::thread([this] { Run(); });
  LogInfo("recording", {{"file", path_}, {"max_bytes", max_bytes_}});
  return absl::OkStatus();
}

void Recorder::Add(std::string_view line) {
  if (!on()) return;
  bool say = false;
  {
    MutexLock lock(mu_);
    const bool fits = line.size() <= kMaxLine && pending_.size() + line.size() <= kMaxPending;
    if (fits) {
      const size_t before = pending_.size();
      pending_.append(line);
      // The writer waits for a first line, and then for more. To wake it costs a system call.
      const bool half = before < kMaxPending / 2 && pending_.size() >= kMaxPending / 2;
      if (before == 0 || half) changed_.NotifyOne();
      return;
    }
    say = !std::exchange(said_dropped_, true);
  }
  metrics_.RecordDropped();
  if (say) {
    LogWarning("the recording loses requests: the disk is too slow, or a request too long",
               {{"file", path_}});
  }
}

void Recorder::Run() {
  pthread_setname_np(pthread_self(), "recorder");
  std::string lines;
  for (bool last = false; !last;) {
    lines.clear();
    {
      MutexLock lock(mu_);
      while (pending_.empty() && !stopping_) changed_.Wait(mu_);
      const auto until = std::chrono::steady_clock::now() + kGather;
      while (pending_.size() < kMaxPending / 2 && !stopping_ && changed_.WaitUntil(mu_, until)) {
      }
      lines.swap(pending_);
      last = stopping_;
    }
    if (!Write(lines)) break;
  }
  End();
}

// Whether the recording goes on.
bool Recorder::Write(std::string_view lines) {
  const auto room = static_cast<size_t>(max_bytes_ - written_);
  const bool full = lines.size() > room;
  if (full) {  // as many whole lines as there is room for
    const size_t end = room == 0 ? std::string_view::npos : lines.rfind('\n', room - 1);
    lines = end == std::string_view::npos ? std::string_view() : lines.substr(0, end + 1);
  }
  while (!lines.empty()) {
    const ssize_t wrote = write(file_, lines.data(), lines.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      LogError("the recording ends: it cannot be written",
               {{"file", path_}, {"error", std::strerror(wrote < 0 ? errno : EIO)}});
      return false;
    }
    written_ += wrote;
    lines.remove_prefix(static_cast<size_t>(wrote));
  }
  if (full) {
    LogWarning("the recording ends: it has its --record-max-bytes",
               {{"file", path_}, {"bytes", written_}});
  }
  return !full;
}

void Recorder::End() {
  on_ = false;
  close(file_);
  MutexLock lock(mu_);
  std::string().swap(pending_);  // a line that was being added may follow, and stays
}

}  // namespace castor::server
