// Sampled requests on their way to the exporter's thread: bounded in spans and in bytes. What does
// not fit is dropped, never waited for.
//
// Any thread adds; one thread takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "server/tracing/request_trace.h"

namespace castor::server {

using RequestTraces = std::vector<std::unique_ptr<RequestTrace>>;

class SpanQueue {
 public:
  // `max_batch`: as many spans as one Take gives, or a request's more.
  SpanQueue(int64_t max_spans, int64_t max_bytes, int64_t max_batch)
      : max_spans_(max_spans), max_bytes_(max_bytes), max_batch_(max_batch) {}

  // False: it did not fit, and is gone.
  bool Add(std::unique_ptr<RequestTrace> trace);

  // Waits for a first request, and then, for at most `gather`, for a whole batch of spans. With
  // none it returns at `wake` (TimePoint::max(): never). After Close it does not wait; false then,
  // once nothing is left.
  bool Take(std::chrono::nanoseconds gather, TimePoint wake, RequestTraces* taken);

  // Nothing is added any more.
  void Close();

 private:
  const int64_t max_spans_;
  const int64_t max_bytes_;
  const int64_t max_batch_;

  Mutex mu_;
  CondVar changed_;
  std::deque<std::unique_ptr<RequestTrace>> waiting_ ABSL_GUARDED_BY(mu_);
  int64_t spans_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
