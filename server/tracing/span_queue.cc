#include "server/tracing/span_queue.h"

#include <utility>

namespace castor::server {

bool SpanQueue::Add(std::unique_ptr<RequestTrace> trace) {
  const int64_t spans = SpanCount(*trace);
  const int64_t bytes = SizeBytes(*trace);
  MutexLock lock(mu_);
  if (closed_ || spans_ + spans > max_spans_ || bytes_ + bytes > max_bytes_) return false;
  const int64_t before = spans_;
  spans_ += spans;
  bytes_ += bytes;
  waiting_.push_back(std::move(trace));
  // The exporter waits for a first request, and then for a batch. To wake it costs a system call.
  if (before == 0 || (before < max_batch_ && spans_ >= max_batch_)) changed_.NotifyOne();
  return true;
}

bool SpanQueue::Take(std::chrono::nanoseconds gather, TimePoint wake, RequestTraces* taken) {
  taken->clear();
  MutexLock lock(mu_);
  while (waiting_.empty() && !closed_) {
    if (wake == TimePoint::max()) {
      changed_.Wait(mu_);
    } else if (!changed_.WaitUntil(mu_, wake)) {
      break;
    }
  }
  if (!waiting_.empty()) {
    const TimePoint until = std::chrono::steady_clock::now() + gather;
    while (spans_ < max_batch_ && !closed_ && changed_.WaitUntil(mu_, until)) {
    }
  }
  int64_t spans = 0;
  while (!waiting_.empty() && spans < max_batch_) {
    spans += SpanCount(*waiting_.front());
    bytes_ -= SizeBytes(*waiting_.front());
    taken->push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  spans_ -= spans;
  return !closed_ || !taken->empty();
}

void SpanQueue::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  changed_.NotifyOne();
}

}  // namespace castor::server
