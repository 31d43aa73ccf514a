// One JSON object a line for each request: for whoever wants to do their own statistics.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include "client/load/measure/run_data.h"

namespace castor::load {

// Thread-safe. The first line is {"begin_unix_ns": ...}: the wall clock's time of the run's begin,
// from which all other times count.
class RequestLog {
 public:
  // Throws cli::UsageError when the file cannot be written.
  RequestLog(const std::string& file, int64_t begin_unix_ns);
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // Times in nanoseconds; `sent_ns` and `done_ns` below `at_ns` for requests that were dropped.
  void Write(const std::string& cls, size_t endpoint, Outcome outcome, int64_t at_ns,
             int64_t sent_ns, int64_t done_ns);

  // Whether everything was written; call it at the end.
  bool Close();

 private:
  std::mutex mu_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

}  // namespace castor::load
