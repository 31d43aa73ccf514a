#include "engine/base/threads.h"

#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace castor {

absl::Status CheckThreads(int count) {
  std::atomic<bool> enough = false;
  std::vector<std::thread> threads;
  absl::Status status;
  try {
    threads.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) threads.emplace_back([&enough] { enough.wait(false); });
  } catch (const std::exception& error) {
    status = MakeError(Reason::kInternal,
                       "cannot start " + std::to_string(count) + " threads, only " +
                           std::to_string(threads.size()) + ": " + error.what() +
                           " (limits: ulimit -u, ulimit -v, the container's processes)");
  }
  enough = true;
  enough.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace castor
