// Metrics of what becomes of spans.
#pragma once

#include <prometheus/registry.h>

#include <cstdint>
#include <memory>

namespace castor::server {

// Why spans were lost.
enum class DroppedSpans {
  kQueueFull,
  kFailed,    // the collector was away, or silent, for too long
  kRefused,   // the collector refused an export for good
  kRejected,  // it took the export, and not these
  kShutdown,
};
inline constexpr int kDroppedSpans = 5;

// How a call to the collector ended.
enum class TraceExport { kTaken, kPartlyTaken, kFailed, kRefused };
inline constexpr int kTraceExports = 4;

// Any thread.
class TraceMetrics {
 public:
  explicit TraceMetrics(prometheus::Registry& registry);
  ~TraceMetrics();

  void Exported(int64_t spans);
  void Dropped(DroppedSpans reason, int64_t spans);
  void Export(TraceExport result);

 private:
  struct Children;
  const std::unique_ptr<Children> children_;
};

}  // namespace castor::server
