// Some threads that all do the same, until they are told to stop.
#pragma once

#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace castor {

class ThreadGroup {
 public:
  // Each thread calls `run`, which returns soon after `stop` has been called.
  ThreadGroup(int count, const std::function<void()>& run, std::function<void()> stop)
      : stop_(std::move(stop)) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back(run);
    } catch (...) {
      Stop();
      throw;
    }
  }
  ~ThreadGroup() { Stop(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

 private:
  void Stop() {
    stop_();
    for (std::thread& thread : threads_) thread.join();
  }

  const std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

}  // namespace castor
