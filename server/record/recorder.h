// Writes what the server is asked to a file, a line a request (trace_line.h), so that the load can
// be sent again: castor-server --record FILE, castor-load with arrivals = "replay".
//
// A request costs its own thread the forming of its line, some 300 ns, and a copy of it under a
// lock. A thread of the recorder's own writes the lines. What does not fit into 4 MiB between two
// writes is dropped, counted in castor_record_dropped_total and said once in the log. The recording
// ends, and the server goes on, when the file has reached its bound or cannot be written; one line
// in the log tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "server/metrics.h"

namespace castor::server {

// Any thread may call Add and the accessors.
class Recorder {
 public:
  // Records nothing until Start. `metrics` must outlive it.
  explicit Recorder(Metrics& metrics) : metrics_(metrics) {}
  // Writes what was added.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Makes the file, readable by its owner alone, and begins. An empty file will do; one that holds
  // something is refused, since to append would mix two times, and to overwrite would lose a
  // recording. Call at most once, before Add.
  absl::Status Start(const std::string& path, int64_t max_bytes);

  // Whether lines are taken; false again once the recording has ended.
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // From which on the lines' times count.
  TimePoint begin() const { return begin_; }

  // Takes a line, with its newline. Never waits for the disk.
  void Add(std::string_view line);

 private:
  void Run();
  bool Write(std::string_view lines);
  void End();

  // Constant after Start.
  Metrics& metrics_;
  std::string path_;
  int64_t max_bytes_ = 0;
  int file_ = -1;
  TimePoint begin_;

  std::atomic<bool> on_ = false;

  // Of the writer's thread.
  int64_t written_ = 0;

  Mutex mu_;
  CondVar changed_;
  std::string pending_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool said_dropped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread writer_;  // last
};

}  // namespace castor::server
