#include "engine/attention/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace castor::attention {

int ParallelWorkers() { return at::get_num_threads(); }

void ParallelFor(int64_t tasks, const std::function<void(int worker, int64_t task)>& body) {
  const int64_t workers = std::min<int64_t>(ParallelWorkers(), tasks);
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, workers, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t task = next++; task < tasks; task = next++) {
        body(static_cast<int>(worker), task);
      }
    }
  });
}

}  // namespace castor::attention
