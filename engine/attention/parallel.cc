#include "engine/attention/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "engine/base/heartbeat.h"

namespace castor::attention {
namespace {

// About 50 us of one core: what waking a thread costs, give or take.
constexpr double kWorthWakingFor = 4e6;

}  // namespace

int ParallelWorkers() { return at::get_num_threads(); }

void StartWorkers() {
  at::parallel_for(0, ParallelWorkers(), /*grain_size=*/1, [](int64_t, int64_t) {});
}

void ParallelFor(int64_t tasks, double flops,
                 const std::function<void(int worker, int64_t task)>& body) {
  Heartbeat* const heartbeat = Heartbeat::OfThisThread();
  if (heartbeat != nullptr) heartbeat->Beat();
  if (flops < kWorthWakingFor) {
    for (int64_t task = 0; task < tasks; ++task) body(0, task);
    return;
  }
  const int64_t workers = std::min<int64_t>(ParallelWorkers(), tasks);
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, workers, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t task = next++; task < tasks; task = next++) {
        body(static_cast<int>(worker), task);
        // One worker speaks for all, so that they share no cache line for it: when it has no task
        // left, no other has more than one.
        if (worker == 0 && heartbeat != nullptr) heartbeat->Beat();
      }
    }
  });
}

}  // namespace castor::attention
